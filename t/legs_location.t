#!/usr/bin/perl

# Two servers for one request, with other directives of its location:
# intercepted errors, stored files, redirects to other locations.


use lib 't/lib';
use Kvroute;
use Kvroute::Recorder;

my $t = Kvroute->new();

recorder($t, 'P0', '{"kv_transfer_params":{"id":"p"}}');
recorder($t, $_, '{"text":"D"}') for qw(D0 D1);
recorder($t, 'O0', '{"text":"O"}');

mkdir "$t->{dir}/store";

# HTTP/2 servers by nginx itself

my $h2 = $t->version() ge '001029004' && $t->{version} =~ /http_v2_module/;

$t->{vars}{$_} = $t->port() for qw(P2 D2);
$t->{vars}{TO2} = '';
$t->{vars}{AT2} = '';

if ($h2) {
    $t->{vars}{TO2} = 'location /h2/ { kvroute_prefill prefill2 min=1k!;'
                      . ' proxy_http_version 2; proxy_pass http://decode2/; }';
    $t->{vars}{AT2} = join '', map {
        my ($port, $text) = @$_;

        "server { listen 127.0.0.1:$port; http2 on; access_log off;\n"
        . "location / { kvroute_prefill off; return 200 '$text'; } }\n"
    } [ $t->{vars}{P2}, '{"kv_transfer_params":{"id":"p"}}' ],
      [ $t->{vars}{D2}, '{"text":"D"}' ];
}

$t->upstreams(
    prefill => ['P0'],
    prefill2 => ['P2'],
    decode => ['D0'],
    decode2 => ['D2'],
    two => [qw(D0 D1)],
);

$t->conf(<<'EOC');
http {
%%TEMP%%
    log_format kv '$http_x_n $status $kvroute_disaggregated $kvroute_leg1_status '
                  '$upstream_addr';
    access_log %%DIR%%/access.log kv;

    kvroute_zone zone=z:4m;

%%UPSTREAMS%%

    kvroute_prefill prefill min=1k!;
    client_body_buffer_size 64k;
    proxy_http_version 1.1;
    proxy_set_header Connection "";

    server {
        listen 127.0.0.1:%%PORT%%;

        location / { proxy_pass http://two; }
        location /second/ {
            kvroute_prefill off;
            kvroute_pin 127.0.0.1:%%D1%%;
            proxy_pass http://two/;
        }
        location /cheap/ {
            kvroute_prefill prefill min=1k! transfer=0;
            proxy_pass http://two/;
        }
        location /intercept/ {
            proxy_intercept_errors on;
            error_page 400 = @other;
            proxy_pass http://decode/;
        }
        location /store/ {
            proxy_store %%DIR%%/store/file;
            proxy_pass http://decode/;
        }
        location /header/ {
            kvroute_prefill prefill min=1k! connector=header;
            proxy_buffering off;
            proxy_pass http://decode/;
        }
        location /strict/ {
            kvroute_prefill prefill min=1k! fallback=none;
            error_page 503 = @other;
            proxy_pass http://decode/;
        }
        location /try/ {
            kvroute_prefill prefill connector=sglang;
            try_files /none @other;
            proxy_pass http://decode/;
        }
        location /after/ { try_files /none @other; proxy_pass http://decode/; }
        location /moon/ {
            kvroute_prefill prefill connector=mooncake min=1!;
            kvroute_pin 127.0.0.1:%%D0%%;
            proxy_next_upstream error non_idempotent;
            proxy_pass http://two/;
        }
        location /bypass/ { kvroute_policy off; proxy_pass http://two/; }
        location /off/ {
            kvroute_prefill prefill connector=sglang;
            kvroute_policy off;
            proxy_pass http://two/;
        }
        location /off2/ {
            kvroute_prefill prefill connector=sglang;
            kvroute_policy off;
            proxy_pass http://two/;
        }
        %%TO2%%
        location @other {
            kvroute_prefill off;
            proxy_pass http://127.0.0.1:%%O0%%;
        }
        location /kvroute/ { kvroute_status; access_log off; }
    }
%%AT2%%
}
EOC

$t->run();

my $path = '/v1/chat/completions';
my ($asked, $seed) = (0, 1);

sub body { return '{"prompt":"' . text(4000, $seed++) . '"}' }
sub asked { return scalar(grep { !$_->{gone} } sent($t, $_[0])) }
sub left { return scalar(grep { $_->{gone} } sent($t, $_[0])) }
sub load { return $t->peer($_[0], $t->{vars}{$_[1]})->{active} }

# starts a request; X-<NAME> tells a server what to do

sub begin {
    my ($where, $do, $body) = @_;

    unlink map { "$t->{dir}/$_.sent" } qw(P D O);

    return $t->start("POST $where$path", $body // body(),
                     headers => { %$do, 'X-N' => ++$asked });
}

# nginx logs it when the client has left

sub done_with {
    my ($s) = @_;

    my $r = $t->finish($s);
    close $s;

    return $r;
}

# its end: checks its log line and its answer

sub end {
    my ($s, $line, $text, $name) = @_;

    my $r = done_with($s);

    like($t->logged($asked), qr/^$line /, "$name: the log line");
    is($r->{body}, "{\"text\":\"$text\"}", 'the answer');
}


# directives for answers to clients do not apply to leg 1's answer

end(begin('/intercept', { 'X-P' => 'status 400' }), '200 failed 400', 'D',
    'errors of leg 1 are not intercepted');
is(asked('O'), 0, 'no other location gets them');

end(begin('/store', {}), '200 yes 200', 'D', 'answers are stored');
is(Kvroute::slurp("$t->{dir}/store/file"), '{"text":"D"}', 'leg 2\'s answer is stored');
unlink "$t->{dir}/store/file";
done_with(begin('/store', { 'X-D' => 'close' }));
like($t->logged($asked), qr/^502 yes 200 /, 'without an answer of leg 2');
ok(!-e "$t->{dir}/store/file", 'no file is stored');


# leg 1 fails: the server that has more of the prompt computes it, not the idle
# one that was picked for leg 2

for my $do ('plain', 'status 500') {
    my $text = text(40000, $seed++);
    my $go = "go$seed";

    done_with(begin('/second', {}, "{\"prompt\":\"$text\"}"));

    my @busy = map { begin('/second', { 'X-D' => "wait $go plain" },
                           '{"prompt":"short"}') } 1 .. 2;
    ok(wait_for(sub { load('two', 'D1') == 2 }), 'the server with the prompt is busy');

    done_with(begin('/cheap', { 'X-P' => $do },
                    "{\"prompt\":\"$text" . text(5000, $seed++) . '"}'));

    my $to = $do eq 'plain' ? 'D0' : 'D1';
    like($t->logged($asked), qr/:$t->{vars}{$to}$/, "leg 1: $do, leg 2: $to");

    $t->step($go);
    done_with($_) for @busy;
}


# nginx's own round robin chooses: no costs are compared, and none are missing; if
# no server serves alone there are two anyway

end(begin('/bypass', {}), '200 - -', 'D', 'bypassed');
is(asked('P'), 0, 'the directive has no effect');

for my $where ('/off', '/off2') {
    end(begin($where, {}), '200 yes \S+', 'D', "both at once, $where");
    ok(wait_for(sub { asked('P') }), 'the other one has a request');
    is(join(' ', map { $_->{body} =~ /"bootstrap_room":(\d+)/ && $1 }
                 sent($t, 'P')), (sent($t, 'D'))[0]{body}
       =~ /"bootstrap_room":(\d+)/ && $1, 'they meet');
}


# leg 1 by HTTP/2: nginx's decision about it for each request is kept

SKIP: {
    skip 'servers are asked by HTTP/2 since nginx 1.29.4', 2 unless $h2;

    end(begin('/h2', {}), '200 yes 200', 'D', 'both by HTTP/2');
}


# a sidecar makes leg 1: its place counts until the answer begins

my $s = begin('/header', { 'X-D' => 'wait h1 head event wait h2 end' });
ok(wait_for(sub { asked('D') }), 'a sidecar has the request');
is(load('prefill', 'P0'), 1, 'the prefill server is in use');
$t->step('h1');
ok($t->read_until($s, qr/data:/), 'the answer begins');
ok(wait_for(sub { load('prefill', 'P0') == 0 }), 'then it is free');
is(load('decode', 'D0'), 1, 'the decode server is in use');
$t->step('h2');
done_with($s);


# another location: no reservation is left for the first one

$s = begin('/strict', { 'X-P' => 'status 500', 'X-O' => 'wait o1 plain' });
ok(wait_for(sub { asked('O') }), 'an error of leg 1 leads to another location');
is(load('decode', 'D0'), 0, 'no decode server is reserved');
$t->step('o1');
end($s, '200 -? ?-', 'O', 'the other location');

for my $where ('/try', '/after') {
    end(begin($where, {}), '200 \S+ \S+', 'O', "try_files comes first $where");
    is(asked('P'), 0, 'no prefill request');
    is(asked('O'), 1, 'the other location makes no leg 1');
}


# a decode server fails: the next one computes the prompt, and leg 1 is closed

$s = begin('/moon', { 'X-P' => 'hold', 'X-D0' => 'reset',
                      'X-D1' => 'wait d1 plain' });
ok(wait_for(sub { asked('D') == 2 }), 'a second decode server gets the request');
ok(wait_for(sub { left('P') }), 'leg 1 is closed');
$t->step('d1');
end($s, '200 retried \S+', 'D', 'the second one');

ok($t->idle(), 'the counters are back at zero');

$t->done();
