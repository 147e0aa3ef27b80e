#!/bin/sh
# Adds 1 to the balance of an account, a file in the directory $1. The payload is {"account": N}. If two jobs
# of an account ran at once, both could read the same balance.
set -eu
file=$1/account-$(tr -dc 0-9)
balance=$(cat "$file" 2>/dev/null || echo 0)
sleep 0.1
echo $((balance + 1)) | tee "$file"
