"""The shapes of tensors, as far as the text of a program tells."""
