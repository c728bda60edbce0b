#!/usr/bin/perl

# Responses are observed: their bytes do not change; tokens, the first event and
# ids are found.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();
my $dir = $t->{dir};

# responses as a small server sends them: header, then pieces of the body

my $sse = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
my $json = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
my $usage = '"usage":{"prompt_tokens":40,"completion_tokens":3,'
            . '"prompt_tokens_details":{"cached_tokens":32}}';
my @events = ((map {
    qq(data: {"id":"c","choices":[{"index":0,"delta":{"content":"w$_"}}]}\n\n)
} 1 .. 20), qq(data: {"choices":[],$usage}\n\n), "data: [DONE]\n\n");

my $gzip = join '', map { chr($_ * 7 % 256) } 1 .. 5000;
my $long = '{"choices":[{"text":"' . ('x' x 3_000_000) . qq("}],$usage});

my %corpus = (
    chunked => [ "${sse}Transfer-Encoding: chunked\r\n", 1, @events ],
    plain => [ $json, 0, qq({"choices":[],$usage}) ],
    closed => [ "${sse}Connection: close\r\n", 2, @events ],
    gzip => [ "${sse}Content-Encoding: gzip\r\n", 0, $gzip ],
    empty => [ $json, 0, '' ],
    long => [ $json, 0, $long ],
    bytes => [ $sse, 0, split //, join '', @events ],
    html => [ "HTTP/1.1 502 X\r\nContent-Type: text/html\r\n", 0, '<html>' ],
    error => [ "$sse", 0, qq(data: {"error":{"code":500}}\n\n) ],
    cut => [ "${sse}Transfer-Encoding: chunked\r\n", 3, @events[0 .. 3] ],
);

$t->serve('S', sub {
    my ($c) = @_;
    my $data = '';

    while (defined(my $head = Kvroute::Servers::backend_read($c, \$data))) {
        my ($name) = $head =~ m{^\S+ /\w+/(\w+)};
        my ($h, $how, @pieces) = @{$corpus{$name}};

        $h .= 'Content-Length: ' . length(join '', @pieces) . "\r\n"
            if $how == 0;
        syswrite($c, "$h\r\n");

        for my $p (@pieces) {
            $p = sprintf("%x\r\n%s\r\n", length $p, $p) if $how & 1;

            for (my $off = 0; $off < length $p; ) {
                my $n = syswrite($c, $p, length($p) - $off, $off) or return;
                $off += $n;
            }

            select undef, undef, undef, 0.0005 if @pieces < 100;
        }

        syswrite($c, "0\r\n\r\n") if $how == 1;
        return if $how > 1;
    }
});

my @e = $t->engines(3, '--hardware', 'none', '--model', 'm',
                    '--enable-prompt-tokens-details');
my ($lc) = $t->engines(1, '--hardware', 'none', '--engine', 'llamacpp');
my ($sg) = $t->engines(1, '--hardware', 'none', '--engine', 'sglang',
                       '--enable-cache-report');

$t->{vars}{H2} = $t->port();

$t->upstream('s', 'S max_fails=0', 'S max_fails=0 backup', 'keepalive 4;');
$t->upstream('e', 'E0 E1 E2');

$t->upstream('plain', 'plain', 'S max_fails=0', 'keepalive 4;');

$t->conf(<<'EOF');
    proxy_cache_path %%DIR%%/cache keys_zone=c:1m;
    log_format kv '$request_uri $status|$kvroute_prompt_tokens|$kvroute_cached_tokens'
                  '|$kvroute_completion_tokens|$kvroute_ttft|$kvroute_reason'
                  '|$upstream_addr';
    access_log %%DIR%%/access.log kv;

    upstream lc { zone lc 64k; kvroute kv_cache zone=z;
                  server 127.0.0.1:%%E3%%; }
    upstream sg { zone sg 64k; kvroute kv_cache zone=z;
                  server 127.0.0.1:%%E4%%; }

    proxy_http_version 1.1;
    proxy_set_header Connection "";

    listen 127.0.0.1:%%H2%% http2;

    location /off/ { proxy_pass http://plain; proxy_buffering off; }
    location /on/ { proxy_pass http://s; proxy_buffering off; }
    location /buf/ { proxy_pass http://s; proxy_buffers 8 4k;
                     proxy_buffer_size 4k; proxy_busy_buffers_size 8k; }
    location /page/ { proxy_pass http://s; proxy_intercept_errors on;
                      error_page 502 /page.html; }
    location /page.html { return 200 "our own"; }
    location /zip/ { gzip on; gzip_types *; gzip_min_length 1;
                     proxy_pass http://s; }
    location /cache/ { proxy_cache c; proxy_cache_methods POST;
                       proxy_cache_key $uri; proxy_cache_valid 1h;
                       proxy_pass http://s; }
    location /keep/ { proxy_ignore_client_abort on;
                      proxy_pass http://s; }
    location /v1/ { proxy_pass http://e; proxy_buffering off; }
    location /lc/ { proxy_pass http://lc/; proxy_buffering off; }
    location /sg/ { proxy_pass http://sg/; proxy_buffering off; }
    location = /kvroute/json { kvroute_status json; access_log off; }
EOF

$t->run();

my $n = 0;

# the fields of a request in the access log

sub logged {
    my ($n) = @_;

    my @line;
    wait_for(sub { @line = $t->access_log() =~ /n=$n (.*)\n/; return @line; });

    return split /\|/, $line[0];
}

# no prompt is parsed for a single server, but the log needs tokens, from the
# first request of a worker

$t->post('/lc/v1/chat/completions?n=' . ++$n, chat('x'));
like((logged($n))[1], qr/^[1-9]/,
     'tokens of the first request, whose prompt is not parsed');

# the same bytes with and without the filter, buffered or not

for my $name (sort keys %corpus) {
    my $want = join '', @{$corpus{$name}}[2 .. $#{$corpus{$name}}];

    for my $way (qw(off on buf)) {
        my $r = $t->post("/$way/$name?n=" . ++$n, chat('x'));

        is(length $r->{body}, length $want, "$name, $way: as long");
        ok($r->{body} eq $want, "$name, $way: the same bytes");
        is($r->{complete}, $name eq 'cut' ? 0 : 1, "$name, $way: complete");

        next if $way eq 'off';

        my ($status, $prompt, $cached, $out, $ttft) = logged($n);

        # if it is buffered a part may have gone to a file

        if ($name eq 'long' && $way eq 'buf') {
            like("$prompt $cached $out", qr/^(?:- - -|40 32 3)$/,
                 "$name, $way: tokens or none");

        } elsif ($name =~ /^(?:gzip|empty|html|error|cut)$/) {
            is("$prompt $cached $out", '- - -', "$name, $way: no tokens");

        } else {
            is("$prompt $cached $out", '40 32 3', "$name, $way: tokens");
        }

        if ($name =~ /^(?:empty|html|error)$/) {
            is($ttft, '-', "$name, $way: no first token");

        } else {
            like($ttft, qr/^\d+\.\d{3}$/, "$name, $way: time to first token");
        }
    }
}

# a page of nginx has no first token

my $r = $t->post('/page/html?n=' . ++$n, chat('x'));
is($r->{body}, 'our own', 'nginx sends its page');
is((logged($n))[4], '-', 'a page of nginx has no time to first token');

# HTTP/1.0, HEAD, and a client that leaves

$r = $t->post('/on/plain?n=' . ++$n, chat('x'), version => '1.0');
is($r->{body}, qq({"choices":[],$usage}), 'HTTP/1.0');
my $s = $t->start('HEAD /on/plain?n=' . ++$n);
like($t->read_until($s, qr/\r\n\r\n/), qr/^HTTP\S+ 200/, 'HEAD');

$s = $t->start('POST /on/bytes?n=' . ++$n, chat('x'));
$t->read_until($s, qr/data: /);
close $s;
ok($t->idle(), 'a client that leaves is not counted any more');

$s = $t->start('POST /keep/bytes?n=' . ++$n, chat('x'));
$t->read_until($s, qr/data: /);
close $s;
ok($t->idle(), 'nor is one that leaves with proxy_ignore_client_abort');

# an answer that nginx compresses or has cached: the same tokens or none

$r = $t->post('/zip/chunked?n=' . ++$n, chat('x'),
              headers => { 'Accept-Encoding' => 'gzip' });
is($r->{headers}{'content-encoding'}, 'gzip', 'compressed by nginx');
is(join(' ', (logged($n))[1 .. 3]), '40 32 3', 'its tokens are found');

for my $i (1 .. 2) {
    $r = $t->post('/cache/plain?n=' . ++$n, chat('x'));
    is($r->{body}, qq({"choices":[],$usage}), "cached by nginx, $i");
}

ok($t->idle(), 'the counters are back at zero');

# HTTP/2, without TLS

SKIP: {
    my $curl = `curl --version 2>/dev/null` // '';
    skip 'no curl with HTTP/2', 4 unless $curl =~ /HTTP2/;

    for my $name (qw(chunked gzip long empty)) {
        my $want = join '', @{$corpus{$name}}[2 .. $#{$corpus{$name}}];
        my $got = `curl -s --http2-prior-knowledge -d '{"prompt":"x"}' \\
            http://127.0.0.1:$t->{vars}{H2}/on/$name`;

        ok($got eq $want, "$name, HTTP/2: the same bytes");
    }
}

# engines of all kinds

for my $way ([ 'v1', 'vllm' ], [ 'lc/v1', 'llama.cpp' ], [ 'sg/v1', 'sglang' ])
{
    my ($path, $name) = @$way;

    for my $stream (JSON::PP::false, JSON::PP::true) {
        my @arg = (stream => $stream, max_tokens => 4);
        push @arg, stream_options => { include_usage => JSON::PP::true }
            if $stream;

        my $prompt = text(4000, ++$n);
        my $what = "$name, " . ($stream ? 'streamed' : 'whole');

        $t->post("/$path/chat/completions?n=$n", chat($prompt, @arg));
        $t->post("/$path/chat/completions?n=" . ++$n, chat($prompt, @arg));

        my (undef, $tokens, $cached, $out) = logged($n);
        cmp_ok($tokens, '>', 900, "$what: tokens of the prompt");
        cmp_ok($cached, '>', 0.9 * $tokens, "$what: cached tokens");
        is($out, 4, "$what: tokens of the reply");
    }
}

# a request that refers to an earlier response goes to the server that made it

my %seen;

for my $i (1 .. 8) {
    my $stream = $i & 1 ? JSON::PP::true : JSON::PP::false;

    $r = $t->post('/v1/responses?n=' . ++$n, JSON::PP->new->encode({
        model => 'm', input => text(300, 100 + $i), stream => $stream,
        max_output_tokens => 2 }));

    my ($id) = $r->{body} =~ /"id": ?"(resp_\w+)"/;
    my $addr = (logged($n))[6];

    for my $k (1 .. 2) {
        $r = $t->post('/v1/responses?n=' . ++$n, JSON::PP->new->encode({
            model => 'm', input => text(3000, 200 + 2 * $i + $k),
            previous_response_id => $id, max_output_tokens => 2 }));

        my @log = logged($n);
        is("$r->{status} $log[5] $log[6]", "200 session $addr",
           "response $i.$k goes where $i was made");
    }

    $seen{$addr}++;
}

cmp_ok(scalar keys %seen, '>', 1, 'several engines made responses');

$t->done();
