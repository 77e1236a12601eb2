"""From one recorded run of a whole program to Workloads, whichever executor ran it."""
