"""Studies of GO beside its tables: the value of training and of each part, and real devices."""
