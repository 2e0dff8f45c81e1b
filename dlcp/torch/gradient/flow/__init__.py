"""What the recipe "gradientflow" is made of: chunks that all ranks choose alike, packed, and summed in batches."""
