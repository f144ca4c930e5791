"""The command line: commands, options and settings; it alone prints and exits."""
