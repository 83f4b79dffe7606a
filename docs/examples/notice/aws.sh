#!/bin/sh
# Notice of the end of an AWS spot instance, two minutes ahead (instance metadata, version 2).
# colane agent --notice-command 'sh aws.sh'; not tried on AWS.
base=http://169.254.169.254/latest
token=$(curl -sf -m 2 -X PUT $base/api/token -H 'X-aws-ec2-metadata-token-ttl-seconds: 60') || exit 1
said=$(curl -sf -m 2 -H "X-aws-ec2-metadata-token: $token" $base/meta-data/spot/instance-action) || exit 1
echo "$said" | sed -E 's/.*"action": *"([a-z-]+)".*"time": *"([^"]+)".*/\2 AWS: \1/'
