#!/usr/bin/env bash
# The network of the cluster in DIR: a namespace for each node and one, "head", for the controller, the clients and a bridge
# that joins them all. Nothing of it is in the machine's own network. up.sh --netns and down.sh call this.
#   netns.sh up DIR NODES      the names it chose begin with the word that it leaves in DIR/run/netns
#   netns.sh down DIR
set -euo pipefail
act=${1:?usage: netns.sh up|down DIR} D=${2:?usage: netns.sh up|down DIR}
case $act in
  up)
    for _ in $(seq 20); do
      ns=expctl$((RANDOM * 32768 + RANDOM))
      echo "$ns" > "$D/run/netns"
      ! ip netns add "$ns-head" 2>"$D/log/netns.log" || break
      rm "$D/run/netns"
    done
    [ -e "$D/run/netns" ] || { cat "$D/log/netns.log" >&2; exit 1; }
    head=(ip -n "$ns-head")
    "${head[@]}" link set lo up
    "${head[@]}" link add br0 type bridge
    "${head[@]}" addr add 10.77.0.254/24 dev br0
    "${head[@]}" link set br0 up
    for ((i = 1; i <= $3; i++)); do
      ip netns add "$ns-n$i"
      "${head[@]}" link add "v$i" type veth peer name eth0 netns "$ns-n$i"
      "${head[@]}" link set "v$i" master br0 up
      ip -n "$ns-n$i" link set lo up
      ip -n "$ns-n$i" addr add "10.77.0.$i/24" dev eth0
      ip -n "$ns-n$i" link set eth0 up
    done ;;
  down)
    ns=$(cat "$D/run/netns")
    for n in /run/netns/"$ns"-*; do [ -e "$n" ] && ip netns del "${n##*/}"; done
    rm -f "$D/run/netns" ;;
esac
