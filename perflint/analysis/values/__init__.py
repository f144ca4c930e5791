"""What each expression may evaluate to: kind, place, type and shape."""
