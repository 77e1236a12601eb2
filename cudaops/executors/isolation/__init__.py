"""What is between this machine and code that nobody vouches for.

`phases` says what each kind of child may do, `level` how much of that this machine can enforce, and
`start` turns the two into a command line: `launcher.py`, which confines itself and becomes the
command. See docs/isolation.md.
"""
