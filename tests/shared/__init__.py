"""What tests of several rooms share and no room owns: processes to kill, and how long each file of tests takes."""
