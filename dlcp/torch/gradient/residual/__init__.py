"""What a rank could not send, and adds to its next gradients: rule, memory, report, and what is saved of it."""
