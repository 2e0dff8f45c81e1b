"""Values in few bits: where they stand in scale groups, who adds them, and how they are coded and decoded."""
