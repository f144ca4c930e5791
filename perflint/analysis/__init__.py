"""What is known of a program without running it: one folder for each question."""
