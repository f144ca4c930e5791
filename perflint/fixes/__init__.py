"""What rules share to make their fixes: recipes that change a program, each with the proof that it may."""
