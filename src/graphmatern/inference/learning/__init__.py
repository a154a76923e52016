"""Learning parameters: what is known of them, how they are searched for, what comes out."""
