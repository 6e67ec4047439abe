"""What a program will do and what that costs, before it runs; and which of a file's programs costs least."""
