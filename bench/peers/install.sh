#!/bin/sh

# Fetches programs, each into a folder of its own under DIR and nowhere else.
# Names those that are not available, and leaves them out.
#
#     install.sh DIR smg|vllm|haproxy|aiperf...

dir=$1
mkdir -p "$dir" && cd "$dir" || exit 1
shift


pip_router() {
    name=$1
    package=$2

    test -e "$name/ready" && return

    python3 -m venv "$name" >"$name.log" 2>&1 \
    && "$name/bin/pip" install -q $package >>"$name.log" 2>&1 \
    && touch "$name/ready" \
    || echo "$name: not available here, see $dir/$name.log"
}


# Debian's packages, unpacked without being installed

deb_router() {
    name=$1
    shift

    test -e "$name/ready" && return

    mkdir -p "$name/deb"
    (cd "$name/deb" && apt-get download "$@") >"$name.log" 2>&1 \
    && for p in "$name"/deb/*.deb; do dpkg -x "$p" "$name" || exit 1; done \
    && touch "$name/ready" \
    || echo "$name: not available here, see $dir/$name.log"
}


for name; do
    case $name in
        smg) pip_router smg smg==1.13.0 ;;
        vllm) pip_router vllm vllm-router==0.1.17 ;;
        aiperf) pip_router aiperf aiperf==0.13.0 ;;
        haproxy) deb_router haproxy haproxy liblua5.3-0 \
            libopentracing-c-wrapper0 libopentracing1 ;;
    esac
done

# the production-stack router comes as a container image and in its sources
# only; llm-d's needs Kubernetes: its own figure is quoted instead

exit 0
