"""What can be known of a program before it runs; asked by passes, and by the checks of what they made sure of."""
