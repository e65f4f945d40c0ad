#!/bin/sh
# The demo's paid tool: counts itself, says that it has begun, and takes its time. Run a second time it would not wait, so that a second
# run shows as a count of 2 and not as a demo that hangs.
cat > /dev/null
first=no
[ -e started ] || first=yes
echo "$AGENTRUN_CALL_KEY" >> ran
: > started
[ "$first" = yes ] && sleep 60
echo "A courier to Berlin is booked."
