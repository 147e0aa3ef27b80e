#!/bin/sh
# Converts a page: the payload is {"page": N}, the result is the number of its words.
set -eu
page=$(tr -dc 0-9)
echo $((page * 100))
