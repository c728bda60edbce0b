#!/usr/bin/perl

# Real clients: curl over HTTP/1.1, HTTP/2 and HTTP/3, with and without TLS, and the openai and
# anthropic SDKs in releases for Node.js 18 (t/clients/package.json). They get
# the same answers from an upstream with the module as without it.
# Debian 12's curl and nginx have no HTTP/3: KVROUTE_CURL is another curl, as in
# t/matrix/run.
# one, as t/matrix/run has it.

use FindBin;
use lib 't/lib';
use JSON::PP;
use Kvroute;

my $root = "$FindBin::Bin/..";
my $build = $ENV{BUILD} || "$root/build";

my $t = Kvroute->new();

# an engine for each way, with the same requests in the same order: even their
# reports about caches are the same.  The routed engine appears as two peers.

$t->engines(2, '--model', 'm', '--hardware', 'none', '--output-tokens', 24,
            '--enable-prompt-tokens-details', '--host', '0.0.0.0',
            '--keepalive-timeout', 600, '--continue');

$t->{vars}{$_} = $t->port() for qw(PLAIN H2 PLAIN2 H3 PLAIN3 TLS PLAIN_TLS);

$t->version();

my @curl3 = split ' ', $ENV{KVROUTE_CURL} || 'curl';
my $no_tls = no_tls();
my $no_h3 = $no_tls || no_http3();

for (qw(H3 PLAIN3)) {
    $t->{vars}{"${_}_LISTEN"} = $no_h3 ? '' : <<"EOC";
listen 127.0.0.1:$t->{vars}{$_} quic reuseport;
        ssl_certificate $t->{dir}/cert.pem;
        ssl_certificate_key $t->{dir}/key.pem;
EOC
}

for (qw(TLS PLAIN_TLS)) {
    $t->{vars}{"${_}_LISTEN"} = $no_tls ? '' : <<"EOC";
listen 127.0.0.1:$t->{vars}{$_} ssl http2;
        ssl_certificate $t->{dir}/cert.pem;
        ssl_certificate_key $t->{dir}/key.pem;
EOC
}

$t->upstream('llm', 'E1', 'server 127.0.0.2:%%E1%%;', 'keepalive 8;');

$t->conf(<<'EOC')->run();
http {
%%TEMP%%
    kvroute_zone zone=z:2m;

    log_format kv '$request_method $uri $status $server_protocol '
                  '$kvroute_policy $kvroute_reason $kvroute_prompt_bytes '
                  '$kvroute_matched_bytes';
    access_log off;

    map $kvroute_continued $fault {
        volatile;
        default none;
        "" truncate=5;
    }

    upstream plain {
        server 127.0.0.1:%%E0%%;
        keepalive 8;
    }
%%UPSTREAMS%%

    client_max_body_size 64m;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_buffering off;

    server {
        listen 127.0.0.1:%%PLAIN%%;
        listen 127.0.0.1:%%PLAIN2%% http2;
        %%PLAIN3_LISTEN%%
        %%PLAIN_TLS_LISTEN%%
        location / { proxy_pass http://plain; }
        location /broken/ { proxy_pass http://plain/; }
    }
    server {
        listen 127.0.0.1:%%PORT%%;
        listen 127.0.0.1:%%H2%% http2;
        %%H3_LISTEN%%
        %%TLS_LISTEN%%
        access_log access.log kv;
        location / { proxy_pass http://llm; }
        location /broken/ {
            kvroute_continue on;
            proxy_set_header X-Engine-Fault $fault;
            proxy_set_header Connection "";
            proxy_pass http://llm/;
        }
        location /kvroute/ { kvroute_status; access_log off; }
    }
}
EOC

my %port = (plain => [ @{$t->{vars}}{qw(PLAIN PLAIN2 PLAIN3 PLAIN_TLS PLAIN_TLS)} ],
            routed => [ @{$t->{vars}}{qw(PORT H2 H3 TLS TLS)} ]);
my @command = ([ 'curl', '--http1.1' ], [ 'curl', '--http2-prior-knowledge' ],
               [ @curl3, '--http3-only', '-k' ], [ 'curl', '--http1.1', '-k' ],
               [ 'curl', '--http2', '-k' ]);
my @version = ('HTTP/1.1', 'HTTP/2', 'HTTP/3', 'HTTP/1.1 and TLS', 'HTTP/2 and TLS');
my %engine = (plain => $t->{vars}{E0}, routed => $t->{vars}{E1});


sub aborted {
    my ($way) = @_;

    return $t->control($engine{$way})->{aborted};
}


# returns why HTTP/3 or TLS cannot be tested, or nothing

sub no_http3 {
    return 'this nginx has no HTTP/3' unless $t->{version} =~ /http_v3_module/;
    return 'this curl has no HTTP/3'
        unless `@curl3 -V 2>/dev/null` =~ /^Features:.*\bHTTP3\b/m;
    return '';
}


# makes a certificate

sub no_tls {
    return 'this nginx has no TLS' unless $t->{version} =~ /http_ssl_module/;
    return 'openssl is not installed' unless which('openssl');

    my $made = `openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -keyout $t->{dir}/key.pem -out $t->{dir}/cert.pem 2>&1`;

    return $? == 0 ? '' : "no certificate: $made";
}


# --- curl

sub url {
    my ($way, $uri, $h) = @_;

    return ($h >= 2 ? 'https' : 'http') . "://127.0.0.1:$port{$way}[$h]$uri";
}


# returns an answer without the parts that always differ

sub curl {
    my ($way, $uri, $h, @args) = @_;

    my @cmd = (@{$command[$h]}, '-siN', '-m', 60, @args, url($way, $uri, $h));

    open my $fh, '-|', @cmd or die "curl: $!";
    local $/;
    my $out = <$fh> // '';
    close $fh;

    $out =~ s/^(?:date|x-engine-replica): .*\r\n//mgi;
    $out =~ s/(chatcmpl-|cmpl-|msg_|resp_)[0-9a-f]+/$1/g;
    $out =~ s/"(created(?:_at)?)":[\d.]+/"$1":0/g;

    return $out;
}


# curl prints nothing of an HTTP/2 answer if it reads the header and the reset
# at once

sub answer {
    my $out = '';

    for (1 .. 20) {
        $out = curl(@_);
        last if $out ne '';
    }

    return $out;
}


sub body {
    my ($name, $what) = @_;

    my $file = "$t->{dir}/$name.json";
    Kvroute::write_file($file, ref $what ? encode_json($what) : $what);

    return ('-H', 'Content-Type: application/json', '--data-binary', "\@$file");
}


sub with_curl {
    my ($h) = @_;

    my $v = $version[$h];
    my $say = sub { { model => 'm', max_tokens => 24, messages => [
                      { role => 'user', content => text($_[0], 10 * $_[1]
                                                               + $h) } ],
                      @_[2 .. $#_] } };
    my $chat = '/v1/chat/completions';
    my $tool = { type => 'function', function => { name => 'weather',
                 parameters => { type => 'object', properties => {} } } };

    my @cases = (
        [ 'models', '/v1/models' ],
        [ 'HEAD', '/v1/models', '-I' ],
        [ 'chat', $chat, body('chat', $say->(3_000, 1)) ],
        [ 'again', $chat, body('chat', $say->(3_000, 1)) ],
        [ 'stream', $chat, body('stream', $say->(3_000, 2, stream =>
                                                 JSON::PP::true)) ],
        [ 'tools', $chat, '-H', 'X-Engine-Tool-Call: 1',
          body('tools', $say->(2_000, 3, tools => [ $tool ])) ],
        [ 'message', '/v1/messages', '-H', 'anthropic-version: 2023-06-01',
          body('message', $say->(2_000, 4, stream => JSON::PP::true)) ],
        [ 'a large body', $chat, body('large', $say->(300_000, 5)) ],
        [ 'a body of unknown length', $chat,
          $v =~ /1\.1/ ? ('-H', 'Transfer-Encoding: chunked') : (),
          body('chunked', $say->(40_000, 6)) ],
        [ 'Expect', $chat, '-H', 'Expect: 100-continue',
          body('expect', $say->(4_000, 7)) ],
        [ 'no JSON', $chat, body('none', '{"model":') ],
        [ 'nothing there', '/nothing', body('chat', $say->(3_000, 1)) ],
        [ 'an error', $chat, '-H', 'X-Engine-Fault: status=503',
          body('chat', $say->(3_000, 1)) ],
        [ 'an answer cut off', $chat, '-H', 'X-Engine-Fault: truncate=3',
          body('stream', $say->(3_000, 2, stream => JSON::PP::true)) ],
    );

    for my $case (@cases) {
        my ($name, $uri, @args) = @$case;
        my ($plain, $routed) = map { answer($_, $uri, $h, @args) }
                               qw(plain routed);

        like($routed, qr{^HTTP/}, "curl, $v: $name: an answer");
        ok($routed eq $plain, "curl, $v: $name: the same")
            or diag($plain, "\n---\n", $routed);
    }

    # a client that leaves; nginx tells the engine

    for my $way (qw(plain routed)) {
        my $before = aborted($way);

        my @cmd = (@{$command[$h]}, '-sN', '-H', 'X-Engine-Fault: slow=100',
                   '-H', 'X-Engine-Output-Tokens: 500',
                   body('slow', $say->(2_000, 8, max_tokens => 500,
                                       stream => JSON::PP::true)),
                   url($way, $chat, $h));

        # with UDP nginx cannot see that a process has ended: the client must
        # say so, which it does when nothing reads its output

        if ($h == 2) {
            open my $fh, '-|', @cmd or die "curl: $!";
            my $got = '';
            1 while $got !~ /content/ && sysread $fh, $got, 4096, length $got;
            like($got, qr/content/, "curl, $v: $way: has begun");
            close $fh;

        } else {
            my $s = $t->spawn("$t->{dir}/curl-$way.$h", @cmd);

            ok(wait_for(sub { Kvroute::slurp("$t->{dir}/curl-$way.$h")
                              =~ /content/ }), "curl, $v: $way: has begun");

            kill 'TERM', $s;
            waitpid($s, 0);
        }

        ok(wait_for(sub { aborted($way) == $before + 1 }),
           "curl, $v: $way: the engine notices that the client left");
    }

    ok($t->idle(), "curl, $v: nothing is left");
}

SKIP: {
    skip 'curl is not installed', 1 unless which('curl');

    with_curl(0);

    skip 'this curl has no HTTP/2', 1
        unless `curl -V` =~ /^Features:.*\bHTTP2\b/m;
    skip 'this nginx has no HTTP/2', 1
        unless $t->{version} =~ /http_v2_module/;

    with_curl(1);

    skip $no_tls, 1 if $no_tls;

    with_curl($_) for 3, 4;
}

SKIP: {
    skip $no_h3, 1 if $no_h3;

    with_curl(2);

    ok((grep { m{^POST \S+ 200 HTTP/3\.0 kv_cache affinity } }
        split /\n/, $t->access_log()) > 0, 'routed, over HTTP/3');
}

# --- SDKs

sub sdks {
    return 'KVROUTE_SANITIZED: the clients are the same'
        if $ENV{KVROUTE_SANITIZED};

    for my $cmd (qw(node npm)) {
        return "$cmd is not installed" unless which($cmd);
    }

    my ($major) = `node --version` =~ /^v(\d+)/;
    return 'this Node.js is older than 18' unless $major && $major >= 18;

    # the versions of the lock file, kept in build

    my $modules = "$build/t/clients";
    my $want = Kvroute::slurp("$root/t/clients/package-lock.json");

    if (Kvroute::slurp("$modules/done") ne $want) {
        system("mkdir -p $modules && cp $root/t/clients/*.json $modules/"
               . " && cd $modules && npm ci --no-audit --no-fund"
               . " --ignore-scripts >npm.log 2>&1") == 0
            or return 'npm cannot fetch the SDKs';

        Kvroute::write_file("$modules/done", $want);
    }

    my %before = map { $_ => aborted($_) } keys %engine;

    local $ENV{NODE_PATH} = "$modules/node_modules";
    local $ENV{PLAIN} = "http://127.0.0.1:$port{plain}[0]";
    local $ENV{ROUTED} = "http://127.0.0.1:$port{routed}[0]";

    open my $fh, '-|', 'node', '--no-deprecation',
         "$root/t/clients/clients.js" or return "node: $!";

    while (<$fh>) {
        if (/^(not )?ok \d+ - (.*)/) {
            ok(!$1, $2);

        } elsif (/^# (.*)/) {
            diag($1);
        }
    }

    ok(close($fh), 'the SDKs are done');

    for my $way (sort keys %engine) {
        ok(wait_for(sub { aborted($way) == $before{$way} + 2 }),
           "$way: the engine notices both aborts");
    }

    ok($t->idle(), 'the counters are back at zero');

    return;
}

SKIP: {
    my $why = sdks();
    skip $why, 1 if $why;
}

# --- the requests were routed by their content

my @log = grep { m{^POST /v1/(?:chat/completions|messages|responses|completions) 200} }
          split /\n/, $t->access_log();

ok(@log > 5, 'requests were logged');
is((grep { !/ kv_cache \w+ \d+ \d+$/ } @log)[0], undef, 'all were parsed');
ok((grep { / (\d+)$/ && $1 > 1000 } @log) > 1, 'and matched');

$t->done();
