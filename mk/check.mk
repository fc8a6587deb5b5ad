# make check
