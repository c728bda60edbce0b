#!/bin/sh

# Fetches the routers to measure beside, each into a folder of its own under
# DIR and nowhere else; what cannot be had is said, and left out.
#
#     install.sh DIR

dir=$1
mkdir -p "$dir" && cd "$dir" || exit 1


pip_router() {
    name=$1
    package=$2

    test -e "$name/ready" && return

    python3 -m venv "$name" >"$name.log" 2>&1 \
    && "$name/bin/pip" install -q $package >>"$name.log" 2>&1 \
    && touch "$name/ready" \
    || echo "$name: not to be had here, see $dir/$name.log"
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
    || echo "$name: not to be had here, see $dir/$name.log"
}


pip_router sglang sglang-router
pip_router vllm vllm-router
deb_router haproxy haproxy liblua5.3-0 libopentracing-c-wrapper0 \
    libopentracing1

# the production-stack router comes as a container image and in its sources
# only; llm-d's needs Kubernetes: its own figure is quoted instead

test -e production-stack/ready \
|| echo "production-stack: no published package of this name; left out"
exit 0
