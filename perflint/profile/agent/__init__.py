"""What runs in the processes of the program that is profiled."""
