#!/bin/sh
# Builds Debian's own nginx, from its source package, with the module and with
# sanitizers: t/sanitize.sh DIR.  Private apt lists: nothing of the system
# changes.  -DNGX_DEBUG_PALLOC makes every allocation from a pool a malloc().
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
dir=${1:?directory}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

. /etc/os-release

if [ ! -d "$dir/nginx" ]; then
    mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial" \
        "$dir/apt/parts"

    # where this machine has Debian's packages from, there the sources are

    for f in /etc/apt/sources.list.d/*.sources; do
        if grep -q debian-archive "$f" 2>/dev/null; then
            sed 's/^Types:.*/Types: deb-src/' "$f" \
                > "$dir/apt/parts/$(basename "$f")"
        fi
    done

    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null \
        | sed -n "s/^deb \(.*debian.* $VERSION_CODENAME.*\)/deb-src \1/p" \
        > "$dir/apt/sources.list"

    opts="-oDir::Etc::sourcelist=$dir/apt/sources.list
          -oDir::Etc::sourceparts=$dir/apt/parts
          -oDir::State::Lists=$dir/apt/lists
          -oDir::Cache=$dir/apt/cache
          -oAPT::Sandbox::User=$(id -un)"

    # shellcheck disable=SC2086
    apt-get $opts update -qq

    cd "$dir"

    # what is told of is not always there already: then the one before it

    # shellcheck disable=SC2086
    for v in $(apt-cache $opts showsrc nginx | sed -n 's/^Version: //p' \
               | sort -urV)
    do
        rm -f nginx_*.dsc
        apt-get $opts source -qq --download-only "nginx=$v" \
            > source.log 2>&1 && break
    done

    ls nginx_*.dsc > /dev/null 2>&1 || { cat source.log; exit 1; }

    dpkg-source --no-check -x nginx_*.dsc nginx.tmp >/dev/null 2>&1
    mv nginx.tmp nginx
fi

cd "$dir/nginx"

san="-fsanitize=address,undefined -fno-sanitize=nonnull-attribute"

# nginx reads unaligned words and passes NULL to memcpy() for no bytes: those
# two are its own habits; and what no test uses need not be compiled

without=
for m in memcached autoindex empty_gif browser userid; do
    without="$without --without-http_${m}_module"
done

# config finds the sources by itself: asked again when one comes or goes

find "$root/ngx_http_kvroute_module" -name '*.[ch]' | sort > sources.new

if [ ! -f objs/Makefile ] || [ "$root/config" -nt objs/Makefile ] \
    || [ "$root/config.make" -nt objs/Makefile ] \
    || ! cmp -s sources.new sources \
    || [ "$root/t/sanitize.sh" -nt objs/Makefile ]; then
    mv sources.new sources
    # shellcheck disable=SC2086
    ./configure $without --with-debug --with-compat --with-threads \
        --with-http_ssl_module --with-http_v2_module \
        --with-http_auth_request_module --with-http_realip_module \
        --with-cc-opt="-O1 -g -fno-omit-frame-pointer $san -DNGX_DEBUG_PALLOC=1 \
            -DNGX_SUPPRESS_WARN=1 -DNGX_HAVE_NONALIGNED=0 -Wno-error" \
        --with-ld-opt="$san" --add-dynamic-module="$root" \
        > configure.log 2>&1 || { tail -n 20 configure.log; exit 1; }
fi

# undefined behaviour is looked for in what is ours; compiling nginx so, too,
# would take twice as long

core=$(sed -n 's/^CFLAGS = *//p' objs/Makefile | sed 's/address,undefined/address/')

{ make -s -j"$(nproc)" -f objs/Makefile binary CFLAGS="$core" \
  && make -s -j"$(nproc)" -f objs/Makefile modules; } > make.log 2>&1 \
    || { tail -n 20 make.log; exit 1; }

echo "built $dir/nginx/objs/nginx with sanitizers"
