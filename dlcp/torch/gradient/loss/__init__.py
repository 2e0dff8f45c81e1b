"""How much a buffer may lose: its budget, the phase of the training, and how long a message may take."""
