#!/bin/sh
# The first process of a node, in mount, network and PID namespaces of its own:
# it makes them look like a machine, says so by a file, and then adopts and
# reaps what its other processes leave. Its end is the end of all of them.
#
#   init.sh <folder of the node> <address of the node>
set -eu
dir=$1
address=$2

# Nothing that is mounted from here on is seen outside.
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/lock
mount --bind "$dir/lib" /var/lib
mount --bind "$dir/log" /var/log
resolv=$(readlink -f /etc/resolv.conf)
case $resolv in
/run/*) mkdir -p "${resolv%/*}" && : >"$resolv" ;;
esac
mount --bind "$dir/resolv.conf" "$resolv"

# The kubelet sets these for the whole machine when they differ. It is shown
# files that have the values already.
mkdir /run/sysctl
for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 \
	kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
	file=/run/sysctl/$(echo "${setting%=*}" | tr / .)
	echo "${setting#*=}" >"$file"
	mount --bind "$file" "/proc/sys/${setting%=*}"
done
# Volumes that the kubelet mounts are to be seen by the containers' processes.
mount --make-rshared /

ip link set lo up
ip link add node0 type bridge
ip address add "$address/32" dev node0
ip link set node0 up
# Leads nowhere, but without a route a Service's address would be refused
# before kube-proxy's rules replace it.
ip route add default dev node0
echo 1 >/proc/sys/net/ipv4/ip_forward

: >"$dir/ready"
while :; do
	sleep 1000000 &
	wait
done
