#!/bin/sh
# Builds Debian's own nginx, from its source package, with the module and with
# sanitizers: t/sanitize.sh DIR.  -DNGX_DEBUG_PALLOC makes every allocation from
# a pool a malloc().
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
dir=${1:?directory}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

test -d "$dir/nginx" || "$root/t/source" nginx "$dir/nginx"

cd "$dir/nginx"

san="-fsanitize=address,undefined -fno-sanitize=nonnull-attribute"

# nginx reads unaligned words and passes NULL to memcpy() for zero bytes: these
# two checks are off.  Modules that no test uses are not compiled

without=
for m in memcached autoindex empty_gif browser userid; do
    without="$without --without-http_${m}_module"
done

# config finds the sources itself: run it again when one is added or removed

find "$root"/ngx_http_kvroute*_module -name '*.[ch]' | sort > sources.new

if [ ! -f objs/Makefile ] || [ "$root/config" -nt objs/Makefile ] \
    || [ "$root/config.make" -nt objs/Makefile ] \
    || ! cmp -s sources.new sources \
    || [ "$root/t/sanitize.sh" -nt objs/Makefile ]; then
    mv sources.new sources
    # shellcheck disable=SC2086
    ./configure $without --with-debug --with-compat --with-threads \
        --with-http_ssl_module --with-http_v2_module \
        --with-http_auth_request_module --with-http_realip_module \
        --with-cc-opt="-O0 -g -fno-omit-frame-pointer $san -DNGX_DEBUG_PALLOC=1 \
            -DNGX_SUPPRESS_WARN=1 -DNGX_HAVE_NONALIGNED=0 -Wno-error" \
        --with-ld-opt="$san" --add-dynamic-module="$root" \
        > configure.log 2>&1 || { tail -n 20 configure.log; exit 1; }
fi

# only our code is checked for undefined behaviour: nginx with these checks, or
# with -O1, would take twice as long to compile

core=$(sed -n 's/^CFLAGS = *//p' objs/Makefile | sed 's/address,undefined/address/')

{ make -s -j"$(nproc)" -f objs/Makefile binary CFLAGS="$core" \
  && make -s -j"$(nproc)" -f objs/Makefile modules; } > make.log 2>&1 \
    || { tail -n 20 make.log; exit 1; }

echo "built $dir/nginx/objs/nginx with sanitizers"
