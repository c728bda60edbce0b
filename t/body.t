#!/usr/bin/perl

# Bodies of all kinds: the module reads them in memory or in a file, and nginx
# passes them on unchanged.

use Digest::SHA qw(sha1_hex);
use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

# a server that returns a digest of the body it received

for my $name (qw(B0 B1 B2)) {
    $t->serve($name, sub {
        my ($c) = @_;
        my $data = '';

        while (1) {
            my ($n, $len, $body);

            while (1) {
                $n = index($data, "\r\n\r\n");

                if ($n >= 0) {
                    my $head = substr($data, 0, $n);
                    $body = substr($data, $n + 4);

                    if ($head =~ /^Transfer-Encoding: chunked/mi) {
                        last if $body =~ /0\r\n\r\n\z/;
                    } else {
                        $len = $head =~ /^Content-Length: (\d+)/mi ? $1 : 0;
                        last if length $body >= $len;
                    }
                }

                sysread($c, $data, 65536, length $data) or return;
            }

            $body = Kvroute::Client::parse("HTTP/1.1 200 X\r\n" . substr($data, 0, $n)
                        =~ s/^.*\r\n//r . "\r\n\r\n$body")->{body};

            my $text = sha1_hex($body) . ' ' . length($body);
            syswrite($c, "HTTP/1.1 200 OK\r\nContent-Length: "
                         . length($text) . "\r\nX-Port: $name\r\n\r\n$text");
            $data = '';
        }
    });
}

my $h2 = $t->version() >= '001025001' ? 'http2 on;' : '';
my $listen_h2 = $h2 ? '' : ' http2';

$t->{vars}{$_} = $t->port() for qw(H2 G0 G1);

$t->upstream('u', 'B0 B1 B2');
$t->upstream('grpc', 'G0 G1');

$t->conf(<<"EOF");
    log_format kv '\$arg_n \$kvroute_peer \$kvroute_reason '
                  '\$kvroute_matched_bytes \$kvroute_prompt_bytes '
                  '\$kvroute_model';
    access_log %%DIR%%/access.log kv;

    client_max_body_size 64m;

    location /grpc/ { grpc_pass grpc://grpc; }

    location / { proxy_pass http://u; }
    location /memory/ { client_body_buffer_size 8m; proxy_pass http://u; }
    location /single/ {
        client_body_buffer_size 8m;
        client_body_in_single_buffer on;
        proxy_pass http://u;
    }
    location /file/ { client_body_in_file_only clean; proxy_pass http://u; }
    location /unbuffered/ {
        client_body_buffer_size 1m;
        proxy_request_buffering off;
        proxy_http_version 1.1;
        proxy_pass http://u;
    }
    location /small/ { client_max_body_size 0; proxy_pass http://u; }
    location /salt/ { kvroute_salt \$arg_tenant; proxy_pass http://u; }

    server {
        listen 127.0.0.1:%%H2%%$listen_h2;
        $h2
        location / { proxy_pass http://u; }
    }

    # answers like a gRPC server, as far as HTTP/2 goes

    server {
        listen 127.0.0.1:%%G0%%$listen_h2;
        listen 127.0.0.1:%%G1%%$listen_h2;
        $h2
        access_log off;
        location / { return 200 "\$content_length"; }
    }
EOF

$t->run();

my $n = 0;

# returns the access log's fields for a request

sub logged {
    my ($id) = @_;
    my @f;

    wait_for(sub {
        @f = $t->access_log() =~ /^\Q$id\E (\S+) (\S+) (\S+) (\S+) (\S+)$/m;
    });

    return { peer => $f[0], reason => $f[1], matched => $f[2],
             prompt => $f[3], model => $f[4] };
}

# sends a body twice, in the given ways; the second one must match the first

sub twice {
    my ($name, $uri, $body, $first, $second, $expect) = @_;

    my @got;

    for my $arg ($first, $second) {
        my $id = 'r' . ++$n;
        my $r = $t->post("$uri?n=$id", $body, %$arg);

        is($r->{status}, 200, "$name: served");
        is($r->{body}, sha1_hex($body) . ' ' . length($body),
           "$name: bytes are untouched");

        push @got, logged($id);
    }

    is($got[0]{reason}, 'cold', "$name: new");
    is($got[1]{reason}, 'affinity', "$name: known");
    is($got[1]{peer}, $got[0]{peer}, "$name: same peer");
    is($got[1]{matched}, $expect, "$name: matched") if defined $expect;
    cmp_ok($got[1]{matched}, '>', 0.9 * $got[1]{prompt}, "$name: all of it")
        if length $body > 4096 && !defined $expect;
    is($got[1]{model}, 'm', "$name: model");

    return $got[1];
}

sub body { return chat(text($_[0], ++$n)) }

twice('small', '/', body(1000), {}, {}, 768);
twice('in memory', '/memory/', body(300_000), {}, {});
twice('in one buffer', '/single/', body(300_000), {}, {});
twice('in a file', '/', body(300_000), {}, {});
twice('always in a file', '/file/', body(3000), {}, {});
twice('2 MB in a file', '/', body(2_000_000), {}, {});
twice('2 MB in memory', '/memory/', body(2_000_000), {}, {});
twice('in pieces', '/memory/', body(20_000), { pieces => 1000 }, {});
twice('chunked', '/', body(50_000), { chunked => 777 }, {});
twice('chunked, in memory', '/memory/', body(50_000), { chunked => 3000 },
      { chunked => 10 });
twice('HTTP/1.0', '/', body(20_000), { version => '1.0' }, {});
twice('memory, then file', '/memory/', body(40_000), {}, {});

# buffers of any size, with keys out of order: chat() sorts them

for my $size (129, 200, 4096, 70_000) {
    my @messages = map { { role => $_ % 2 ? 'user' : 'assistant',
                           content => [ { type => 'text',
                                          text => text($_ * 60, $n + $_) } ] }
    } 1 .. 60;

    $n += 60;
    twice("chunks of $size", '/memory/', chat(\@messages),
          { chunked => $size }, {});
}

# bodies that would cost many times as much as others of their length

for my $case ([ '{}', 50_000 ], [ 1, 100_000 ],
              [ '{"content":"","role":"a"}', 15_000 ],
              [ '{"role":"a","a":{}}', 25_000 ],
              [ '"a":1', 100_000 ])
{
    my ($item, $times) = @$case;
    my $many = join(',', ($item) x $times);
    my $body = $item =~ /^"/ ? '{"model":"m",' . $many . '}'
                             : '{"model":"m","messages":[' . $many . ']}';
    my $id = 'r' . ++$n;
    my $r = $t->post("/memory/?n=$id", $body);

    is("$r->{status} $r->{body}", '200 ' . sha1_hex($body) . ' '
                                  . length($body), "too many $item: served");
    is(logged($id)->{prompt}, '-', "too many $item: not read");
}

{
    # the same prompt: once from memory, once from a file
    my $body = body(60_000);
    my $r = $t->post("/memory/?n=mem", $body);
    $r = $t->post("/file/?n=fil", $body);
    my ($mem, $fil) = (logged('mem'), logged('fil'));
    is($fil->{peer}, $mem->{peer}, 'memory and file give the same chain');
    cmp_ok($fil->{matched}, '>', 59_000, 'and match');
}

# unbuffered: the module uses the part that has arrived when nginx picks a peer

twice('unbuffered', '/unbuffered/', body(3000), {}, {});

{
    my $body = body(400_000);
    my @got;

    for my $i (0 .. 1) {
        my $r = $t->post("/unbuffered/?n=un$i", $body, pieces => 30_000);
        is($r->{body}, sha1_hex($body) . ' ' . length($body),
           'unbuffered in pieces: bytes are untouched');
        push @got, logged("un$i");
    }

    unlike($got[1]{reason}, qr/-/, 'unbuffered in pieces: decided');
}

# HTTP/2, by curl

SKIP: {
    skip 'no curl with HTTP/2', 1
        unless `curl -V 2>/dev/null` =~ /HTTP2/;

    for my $case ([ 'length', "" ],
                  [ 'no length', "-H 'Content-Length:' -T - -X POST" ])
    {
        my ($name, $opt) = @$case;
        my $body = body(100_000);
        my @got;

        Kvroute::write_file("$t->{dir}/body", $body);

        my $data = $opt ? '' : "--data-binary \@$t->{dir}/body";

        for my $i (0 .. 1) {
            my $id = 'h2' . $n . $i;
            my $out = `curl -s --http2-prior-knowledge $opt $data \\
                -H 'Content-Type: application/json' \\
                'http://127.0.0.1:$t->{vars}{H2}/?n=$id' < $t->{dir}/body`;

            is($out, sha1_hex($body) . ' ' . length($body),
               "HTTP/2 with $name: bytes are untouched");
            push @got, logged($id);
        }

        is($got[1]{reason}, 'affinity', "HTTP/2 with $name: known");
        cmp_ok($got[1]{matched}, '>', 90_000, "HTTP/2 with $name: matched");
    }
}

# a body that cannot be parsed is routed by load and passed on

sub unread {
    my ($name, $uri, $body, %arg) = @_;

    my $id = 'u' . ++$n;
    my $r = $t->post("$uri?n=$id", $body, %arg);

    is($r->{status}, 200, "$name: served");
    is($r->{body}, sha1_hex($body) . ' ' . length($body),
       "$name: bytes are untouched");

    my $l = logged($id);

    is($l->{reason}, 'unparsed', "$name: unparsed");
    is($l->{matched}, '-', "$name: nothing matched");
}

unread('not JSON', '/', 'hello there');
unread('cut short', '/', substr(body(3000), 0, 2000));
unread('binary', '/', join('', map { chr($_ % 256) } 1 .. 5000));
unread('an array', '/', '[1,2,3]');
unread('no prompt', '/', '{"model":"m","file":"x"}');
unread('too deep', '/', '{"messages":' . '[' x 5000 . ']' x 4999 . '}');
unread('too large', '/small/', chat('x' x 17_000_000));
unread('compressed', '/', body(3000),
       headers => { 'Content-Encoding' => 'gzip' });
unread('gRPC', '/', "\0\0\0\0\5hello",
       headers => { 'Content-Type' => 'application/grpc' });
{
    my $r = $t->post('/grpc/?n=grpc', "\0\0\0\0\5hello",
                     headers => { 'Content-Type' => 'application/grpc' });
    is($r->{status}, 200, 'gRPC by grpc_pass: served');
    is($r->{body}, 10, 'gRPC by grpc_pass: the whole body');
    is(logged('grpc')->{reason}, 'unparsed', 'gRPC by grpc_pass: unparsed');

    # JSON by grpc_pass is parsed like any other

    for my $k (1, 2) {
        $t->post("/grpc/?n=json$k", chat(text(10_000, 77)));
    }

    is(logged('json2')->{reason}, 'affinity', 'JSON by grpc_pass: known');
}

unread('garbage at the end', '/', body(3000) . 'x');

{
    my $body = chat('x' x 3000);
    $t->post('/?n=plain', $body);
    my $r = $t->post('/?n=ident', $body,
                     headers => { 'Content-Encoding' => 'identity' });
    is(logged('ident')->{reason}, 'affinity', 'identity is no encoding');
}

# embeddings are not cached

{
    my $body = '{"model":"e","input":"' . 'y' x 3000 . '"}';
    $t->post('/v1/embeddings?n=e1', $body);
    $t->post('/v1/embeddings?n=e2', $body);
    is(logged('e2')->{reason}, 'load', 'embeddings are routed by load');
    is(logged('e2')->{prompt}, '-', 'embeddings are no prompt');
}

# a salt keeps tenants apart

{
    my $body = chat('z' x 5000);
    $t->post('/salt/?n=s1&tenant=a', $body);
    $t->post('/salt/?n=s2&tenant=b', $body);
    $t->post('/salt/?n=s3&tenant=a', $body);
    is(logged('s2')->{matched}, 0, 'another tenant: nothing matches');
    cmp_ok(logged('s3')->{matched}, '>', 4000, 'same tenant: matches');
}

# no body

{
    my $r = $t->get('/?n=none');
    is($r->{status}, 200, 'no body: served');
    is(logged('none')->{reason}, 'bodyless', 'no body: round robin');

    $r = $t->post('/?n=empty', '');
    is($r->{status}, 200, 'empty body: served');
    is(logged('empty')->{reason}, 'bodyless', 'empty body: round robin');
}

ok($t->idle(), 'the counters are back at zero');

$t->done();
