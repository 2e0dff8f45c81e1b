"""What the blocks of a buffer are worth, and which of them are critical."""
