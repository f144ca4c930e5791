"""What each expression of a file may be: abstract evaluation of its code, statement by statement."""
