"""Reading comprehension with choices: RACE (Lai et al. 2017), and sets like it."""
