#!/bin/sh
# A tool: its arguments come as JSON on stdin, what it prints is the result the model sees. It runs in the workspace, and notes each run
# there, so that you can count them.
cat >>.triage-searches
echo >>.triage-searches
echo "1 incident: INC-7, since 08:10, log-in fails for everyone after update 4.2. Being worked on."
