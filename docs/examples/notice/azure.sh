#!/bin/sh
# Notice of the end of an Azure spot machine, 30 s ahead.
# colane agent --notice-command 'sh azure.sh'; not tried there.
curl -sf -m 2 -H Metadata:true --noproxy '*' \
  'http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01' | grep -q '"Preempt"' && echo '30 evicted'
