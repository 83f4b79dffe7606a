#!/bin/sh
# Notice of the end of a Google Cloud spot machine, 30 s ahead.
# colane agent --notice-command 'sh google_cloud.sh'; not tried there.
curl -sf -m 2 -H 'Metadata-Flavor: Google' \
  http://metadata.google.internal/computeMetadata/v1/instance/preempted | grep -q TRUE && echo '30 preempted'
