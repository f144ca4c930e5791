"""Programs in which a tensor has another name and is written to through it, to hold every fix against."""
