"""What holds for the buffers of one model by its parameters: their names, who loses nothing, which layer is first."""
