"""From lowered steps to a blueprint: machine code, constants, and where everything lies."""
