#!/bin/sh
# Builds the module, an nginx that loads it, and the unit tests with musl
# instead of glibc, like Alpine: t/musl.sh DIR.  Libraries are built from
# Debian's sources, because Debian's binaries need glibc; nginx is Debian's, or
# the tree in NGINX_SRC=.  Afterwards DIR/nginx/objs has nginx and the module,
# and DIR/t/unit the unit tests.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
dir=${1:?directory}
mkdir -p "$dir/include/cjson" "$dir/lib"
dir=$(cd "$dir" && pwd)
cc=musl-gcc
test -z "${NGINX_SRC:-}" || NGINX_SRC=$(cd "$NGINX_SRC" && pwd)

# $1 is the name of a log, which is printed if the command fails

quietly() {
    log=$dir/$1.log
    shift
    "$@" > "$log" 2>&1 || { tail -n 20 "$log"; exit 1; }
}

for package in cjson check hiredis pcre2 zlib; do
    test -d "$dir/$package" || "$root/t/source" "$package" "$dir/$package"
done

# only the header of xxhash is used, and this system's includes nothing but the
# C library's

ln -sf /usr/include/xxhash.h "$dir/include/"
ln -sf "$dir/cjson/cJSON.h" "$dir/include/cjson/"

# Debian's musl has no crypt(), which nginx uses for passwords only

if [ ! -f "$dir/lib/libcrypt.a" ]; then
    echo 'char *crypt(const char *, const char *);' > "$dir/include/crypt.h"
    echo 'char *crypt(const char *k, const char *s) { return 0; }' \
        | $cc -x c -c -o "$dir/crypt.o" -
    ar rcs "$dir/lib/libcrypt.a" "$dir/crypt.o"
fi

if [ ! -f "$dir/lib/libcjson.a" ]; then
    $cc -O2 -fPIC -c -o "$dir/cjson/cJSON.o" "$dir/cjson/cJSON.c"
    ar rcs "$dir/lib/libcjson.a" "$dir/cjson/cJSON.o"
fi

if [ ! -f "$dir/lib/libhiredis.a" ]; then
    mkdir -p "$dir/include/hiredis"
    cp "$dir"/hiredis/*.h "$dir/include/hiredis/"

    for file in alloc hiredis net read sds; do
        $cc -O2 -fPIC -c -o "$dir/hiredis/$file.o" "$dir/hiredis/$file.c"
    done

    ar rcs "$dir/lib/libhiredis.a" "$dir"/hiredis/*.o
fi

if [ ! -f "$dir/lib/libcheck.a" ]; then
    cd "$dir/check"
    test -f configure || quietly check.autoreconf autoreconf -i
    quietly check.configure ./configure CC=$cc --disable-shared \
        --disable-subunit --disable-build-docs --prefix="$dir"
    quietly check.make make -C lib
    quietly check.make make -C src install
    cp check_stdint.h "$dir/include/"
fi

# nginx builds its own pcre and zlib, with its own compiler

if [ ! -d "$dir/nginx" ] && [ -z "${NGINX_SRC:-}" ]; then
    "$root/t/source" nginx "$dir/nginx"
fi

if [ -n "${NGINX_SRC:-}" ]; then
    mkdir -p "$dir/nginx"

    for part in auto conf src configure; do
        test ! -e "$NGINX_SRC/$part" \
            || cp -Ru --preserve=mode,timestamps "$NGINX_SRC/$part" "$dir/nginx/"
    done
fi

cd "$dir/nginx"
configure=./configure
test -f $configure || configure=auto/configure

# config finds the sources itself: run it again when one is added or removed

find "$root"/ngx_http_kvroute*_module -name '*.[ch]' | sort > sources.new

if [ ! -f objs/Makefile ] || [ "$root/config" -nt objs/Makefile ] \
    || ! cmp -s sources.new sources \
    || [ src/core/nginx.h -nt objs/Makefile ]; then
    mv sources.new sources
    quietly nginx.configure sh $configure --with-cc=$cc --with-compat \
        --with-threads --with-http_v2_module --with-http_auth_request_module \
        --with-http_realip_module --with-http_stub_status_module \
        --with-pcre="$dir/pcre2" --with-zlib="$dir/zlib" \
        --with-cc-opt="-g -O2 -Wall -Wextra -Wno-unused-parameter \
            -I$dir/include" \
        --with-ld-opt="-L$dir/lib" --add-dynamic-module="$root"
fi

quietly nginx.make make -j"$(nproc)" -f objs/Makefile binary modules

# no part may need glibc

for file in objs/nginx objs/ngx_http_kvroute*_module.so; do
    if readelf -dV $file | grep -e 'GLIBC_' -e 'libc\.so\.6'; then
        echo "$file needs glibc"
        exit 1
    fi
done

objs/nginx -v

# test_load_steps switches between coroutines with swapcontext(), which musl does
# not have; it tests atomic accesses, which do not depend on the library

cd "$root"
make -s -j"$(nproc)" -f t/unit/Makefile.inc unit-build CC=$cc \
    BUILD="$dir" UNIT_WITHOUT=test_load_steps \
    CORE_INCLUDE="-DXXH_INLINE_ALL= -isystem $dir/include" \
    UNIT_LIBS="-L$dir/lib -lcheck -lcjson -lm -pthread"
