"""What Python tests share and the product does not use."""
