#!/usr/bin/perl

# Clients get the same bytes with the module as without it.  The responses pass
# in every way that nginx supports: buffered or not, through temporary files,
# cache, gzip; as parts of a page, before and after one, after X-Accel-Redirect;
# over HTTP/1.0, 1.1 and 2, with GET and HEAD.

use lib 't/lib';
use IO::Select;
use Kvroute;
use IO::Compress::Gzip qw(gzip);
use IO::Uncompress::Gunzip qw(gunzip);

my $t = Kvroute->new();

$t->version();

my %has = map { $_ => $t->{version} =~ /http_${_}_module/ ? 1 : 0 }
          qw(addition auth_request v2 gunzip);

# --- possible answers of engines and other servers: head, framing, pieces of
# the body

my $sse = "Content-Type: text/event-stream\r\n";
my $json = "Content-Type: application/json\r\n";
my $html = "Content-Type: text/html\r\n";

my @events = map {
    qq(data: {"id":"c","choices":[{"index":0,"delta":{"content":"w$_"}}]}\n\n)
} 1 .. 30;

push @events, qq(data: {"choices":[],"usage":{"prompt_tokens":40,)
              . qq("completion_tokens":3}}\n\n), "data: [DONE]\n\n";

my $bytes = join '', map { chr } 0 .. 255;
my $long = '{"choices":[{"text":"' . join('', map { "word $_ " } 1 .. 30_000)
           . '"}],"usage":{"prompt_tokens":40,"completion_tokens":3}}';

my $plain = join '', @events;
gzip(\$plain => \my $packed);

# framing: l: Content-Length, c: chunked, e: end of the connection, t: chunked
# and cut, s: shorter than Content-Length

my %corpus = (
    events => [ 200, $sse, 'c', @events ],
    single => [ 200, $sse, 'c', split(//, join '', @events[0 .. 2]) ],
    closed => [ 200, $sse, 'e', @events ],
    comments => [ 200, $sse, 'c', ": ping\n\n", "\n", @events[0 .. 3] ],
    error => [ 200, $sse, 'l', qq(data: {"error":{"code":500}}\n\n) ],
    json => [ 200, $json, 'l', '{"choices":[{"text":"a"}],'
              . '"usage":{"prompt_tokens":4,"completion_tokens":1}}' ],
    long => [ 200, $json, 'l', $long ],
    longer => [ 200, $json, 'c', map { substr $long, 9000 * $_, 9000 }
                                 0 .. length($long) / 9000 ],
    bytes => [ 200, $sse, 'c', map { $bytes } 1 .. 20 ],
    packed => [ 200, "${sse}Content-Encoding: gzip\r\n", 'l', $packed ],
    empty => [ 200, $json, 'l' ],
    nothing => [ 200, $sse, 'c' ],
    none => [ 204, '', '' ],
    created => [ 201, "${json}Location: /there\r\n", 'l', '{}' ],
    redirect => [ 307, "Location: http://other/\r\n", 'l', 'x' ],
    unchanged => [ 304, "ETag: \"a\"\r\n", '' ],
    bad => [ 400, $json, 'l', '{"error":"bad"}' ],
    busy => [ 429, "${json}Retry-After: 1\r\n", 'l', '{"error":"busy"}' ],
    broken => [ 500, $html, 'l', '<html>' ],
    cut => [ 200, $sse, 't', @events[0 .. 3] ],
    short => [ 200, $json, 's', '{"choices":[' ],
    part => [ 200, $html, 'l', "a part\n" ],
    again => [ 200, "X-Accel-Redirect: /%%/events\r\n", 'l', 'not this' ],
    file => [ 200, "X-Accel-Redirect: /file.txt\r\n", 'l', 'not this' ],
    page => [ 200, $html, 'l', 'one: <!--# include virtual="/%%/part" -->'
              . 'two: <!--# include virtual="/%%/events" -->'
              . 'none: <!--# include virtual="/%%/none" -->'
              . 'empty: <!--# include virtual="/%%/empty" -->'
              . 'bad: <!--# include virtual="/%%/bad" -->'
              . 'set: <!--# include virtual="/%%/part" set="v" -->'
              . 'again: <!--# echo var="v" encoding="none" -->'
              . ('the end ' x 500) ],
);

$t->serve('S', sub {
    my ($c) = @_;
    my $data = '';

    while (defined(my $req = Kvroute::Servers::backend_read($c, \$data))) {
        my ($method, $who, $name) = $req =~ m{^(\S+) /(\w+)/(\w+)} or return;
        my ($status, $head, $how, @pieces) = @{$corpus{$name}};

        s/%%/$who/g for $head, @pieces;

        my $len = length join '', @pieces;

        $head .= 'Content-Length: ' . ($how eq 's' ? $len + 5 : $len) . "\r\n"
            if $how =~ /[ls]/;
        $head .= "Transfer-Encoding: chunked\r\n" if $how =~ /[ct]/;
        # after a HEAD nginx would keep the connection

        my $bye = $how eq 'e' || ($method eq 'HEAD' && $how =~ /[ts]/);

        $head .= "Connection: close\r\n" if $bye;

        syswrite($c, "HTTP/1.1 $status X\r\n$head\r\n");

        return if $method eq 'HEAD' && $how =~ /[ets]/;
        next if $method eq 'HEAD';

        for my $p (@pieces) {
            next if $p eq '';

            $p = sprintf("%x\r\n%s\r\n", length $p, $p) if $how =~ /[ct]/;

            for (my $off = 0; $off < length $p; ) {
                my $n = syswrite($c, $p, length($p) - $off, $off) or return;
                $off += $n;
            }
        }

        syswrite($c, "0\r\n\r\n") if $how eq 'c';
        return if $how =~ /[ets]/;
    }
});

# --- the same locations for both, with different upstreams

my %way = (
    whole => '',
    stream => 'proxy_buffering off;',
    files => 'proxy_buffers 4 4k; proxy_buffer_size 4k;
              proxy_busy_buffers_size 4k;',
    zip => 'gzip on; gzip_types *; gzip_min_length 1;',
    cache => 'proxy_cache c; proxy_cache_methods POST;
              proxy_cache_key $uri$request_method; proxy_cache_valid 1h;
              add_header X-Cache $upstream_cache_status;',
    ssi => 'ssi on;',
    store => 'proxy_store %%DIR%%/store-$arg_n;',
    keep => 'proxy_ignore_client_abort on;',
);

$way{around} = 'addition_types *; add_before_body /%%WHO%%/part;
                add_after_body /%%WHO%%/events;' if $has{addition};
$way{auth} = 'auth_request /%%WHO%%/check;' if $has{auth_request};
$way{unzip} = 'gunzip on;' if $has{gunzip};

my $locations = '';

for my $who (qw(on no)) {
    $locations .= "location /$who/ { proxy_pass http://$who; }
        location /$who/check { proxy_pass http://$who/$who/json;
                               proxy_pass_request_body off;
                               proxy_set_header Content-Length ''; }\n";

    for my $way (sort keys %way) {
        $locations .= "location /$who/$way/ {
            $way{$way} proxy_pass http://$who/$who/; }\n" =~ s/%%WHO%%/$who/gr;
    }
}

$t->{vars}{H2} = $t->port();
$t->{vars}{HTTP2} = !$has{v2} ? ''
    : $t->version() ge '001025001' ? "listen 127.0.0.1:$t->{vars}{H2}; http2 on;"
    : "listen 127.0.0.1:$t->{vars}{H2} http2;";

Kvroute::write_file("$t->{dir}/file.txt", "a file\n" x 99);

$t->upstream('on', 'S max_fails=0', 'S max_fails=0 backup');
$t->upstream('no', 'plain', 'S max_fails=0', 'S max_fails=0 backup');

$t->conf(<<'EOF' =~ s/LOCATIONS/$locations/r)->run();
    proxy_cache_path %%DIR%%/cache keys_zone=c:1m;

    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_next_upstream off;

    %%HTTP2%%
    location = /file.txt { root %%DIR%%; }
    LOCATIONS
    location = /kvroute/json { kvroute_status json; }
EOF

# returns a response without the parts that always differ

sub same {
    my ($head, $body, $who) = @_;

    $head =~ s/^date: [^\r\n]*(?:\r?\n|\z)//gmi;

    # nginx compresses the data that it has at that time

    if ($head =~ /^content-encoding: gzip/mi && $body =~ /^\x1f\x8b/) {
        my $packed = $body;

        gunzip(\$packed => \$body);
        $head =~ s/^content-length: \d+\r?\n//mi;
    }

    s{/$who/}{/_/}g for $head, $body;

    return "$head\n\n$body";
}

my $n = 0;

sub fetch {
    my ($who, $way, $name, $method, %arg) = @_;

    my $body = $method eq 'POST' ? chat(text(3000, $n)) : undef;
    my $s = $t->start("$method /$who/$way/$name?n=" . ++$n, $body, %arg)
        or return '';
    my $data = '';

    # the server closes: all data before that is the response

    while (IO::Select->new($s)->can_read(60)
           && sysread($s, $data, 65536, length $data)) { }

    my ($head, $rest) = split /\r\n\r\n/, $data, 2;

    # the sizes of pieces are random

    my $r = Kvroute::Client::parse($data, Kvroute::Client::complete($data));

    $r->{body} = $rest if $method eq 'HEAD';

    return same($head, $r->{body}, $who) . "\ncomplete: $r->{complete}";
}

sub compare {
    my ($what, $get) = @_;

    my %got = map { $_ => $get->($_) } qw(no on);

    ok($got{on} eq $got{no} && $got{on} =~ /^HTTP/, "$what: the same")
        or diag("without:\n" . substr($got{no}, 0, 600),
                "\nwith:\n" . substr($got{on}, 0, 600));
}

for my $way (sort keys %way) {
    my %a = $way eq 'zip' ? (headers => { 'Accept-Encoding' => 'gzip' }) : ();

    for my $name (sort keys %corpus) {
        for my $case ([ 'POST' ], [ 'POST', version => '1.0' ], [ 'GET' ],
                      [ 'HEAD' ])
        {
            my ($method, %more) = @$case;

            # old clients and GET are no further ways

            next if $way !~ /whole|stream/ && ($method eq 'GET' || %more);

            my $what = join ' ', $way, $name, $method, values %more;

            compare($what, sub { fetch($_[0], $way, $name, $method, %a,
                                       %more) });
        }
    }
}

# the answers are the expected ones

like(fetch('on', 'ssi', 'page', 'POST'), qr/one: a part.*w30.*again: a part/s,
     'a page has its parts');
like(fetch('on', 'whole', 'again', 'POST'), qr/w30/, 'another response is sent');
like(fetch('on', 'whole', 'file', 'POST'), qr/a file\n/, 'a file is sent');
like(fetch('on', 'around', 'part', 'POST'), qr/a part.*a part.*w30/s,
     'parts around a page are sent') if $has{addition};
like(fetch('on', 'cache', 'json', 'POST'), qr/X-Cache: HIT/, 'cached by nginx');

# several requests at a time on one connection

for my $who (qw(no on)) {
    my $s = $t->connect();
    my $data = '';

    syswrite($s, join '', map {
        my $body = chat($_);
        "POST /$who/stream/$_ HTTP/1.1\r\nHost: a\r\nContent-Length: "
        . length($body) . "\r\n" . ($_ eq 'part' ? "Connection: close\r\n" : '')
        . "\r\n$body"
    } qw(events none json empty part));

    while (sysread($s, $data, 65536, length $data)) { }

    my @status = $data =~ m{HTTP/1\.1 (\d+)}g;
    is("@status", '200 204 200 200 200', "$who: pipelined");
    like($data, qr/w30.*"usage".*a part\n/s, "$who: in order");
}

# HTTP/2, without TLS

SKIP: {
    my $curl = `curl --version 2>/dev/null` // '';

    skip 'no HTTP/2 in this nginx', 1 unless $has{v2};
    skip 'no curl with HTTP/2', 1 unless $curl =~ /HTTP2/;

    Kvroute::write_file("$t->{dir}/body", chat(text(2000, 1)));

    for my $way (qw(whole stream ssi)) {
        for my $name (sort keys %corpus) {

            # a stream that is reset can lose data that was sent before

            next if $corpus{$name}[2] =~ /[ts]/;

            for my $how ("--data-binary \@$t->{dir}/body", '-I') {

                compare("HTTP/2 $way $name " . substr($how, 0, 2), sub {
                    my ($who) = @_;

                    my $r = `curl -s -i --http2-prior-knowledge $how \\
                        http://127.0.0.1:$t->{vars}{H2}/$who/$way/$name`;
                    my $exit = $? >> 8;
                    my ($head, $body) = split /\r\n\r\n/, $r, 2;

                    return same($head, $body // '', $who) . "\nexit: $exit";
                });
            }
        }
    }
}

ok($t->idle(), 'the counters are back at zero');

$t->done();
