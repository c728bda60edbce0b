#!/usr/bin/perl

# Stored responses are in the memory of one engine: requests with the id of one,
# to continue, retrieve, cancel or delete it, go to that engine, under each
# policy, after reloads and from each worker.  Unknown ids are routed by load.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

my @engine = ('--hardware', 'none', '--model', 'm', '--output-tokens', 3,
              '--enable-prompt-tokens-details');
my @e = $t->engines(3, @engine);
my @slow = $t->engines(2, '--model', 'm', '--output-tokens', 100_000);

my @policies = qw(kv_cache least_request round_robin random sticky);
my $locations = '';

for my $p (@policies) {
    my $key = $p eq 'sticky' ? ' key=auto' : '';

    $locations .= "    location /$p/ { kvroute_policy $p$key; "
                  . "proxy_pass http://e/; }\n";
}

$t->{vars}{DOWN} = '';

my $conf = <<'EOF' . $locations;
    %%LOG%%

    upstream e {
        zone e 64k;
        kvroute kv_cache zone=z;
        server 127.0.0.1:%%E0%%;
        server 127.0.0.1:%%E1%%;
        server 127.0.0.1:%%E2%% %%DOWN%%;
        keepalive 4;
    }
    upstream slow {
        zone slow 64k;
        kvroute kv_cache zone=z;
        server 127.0.0.1:%%E3%%;
        server 127.0.0.1:%%E4%%;
    }
    upstream queued {
        zone queued 64k;
        kvroute kv_cache zone=z;
        kvroute_queue max=9 timeout=1h;
        server 127.0.0.1:%%E0%% max_conns=2;
        server 127.0.0.1:%%E1%% max_conns=2;
        server 127.0.0.1:%%E2%% max_conns=2;
    }

    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_buffering off;
    large_client_header_buffers 4 64k;

    location /slow/ { proxy_pass http://slow/; }
    location /queued/ { proxy_pass http://queued/; }
    location /salted/ { kvroute_salt $http_x_tenant;
                        proxy_pass http://e/; }
    location /off/ { kvroute_policy off; proxy_pass http://e/; }
    location = /kvroute/json { kvroute_status json; access_log off; }
EOF

$t->conf($conf)->run();

my $n = 0;

sub make {
    my ($up, %more) = @_;

    my $input = 'said before ' . ++$n;
    my $r = $t->post("/$up/v1/responses", JSON::PP::encode_json(
        { model => 'm', input => $input, %more }), headers =>
        $more{headers} || {});
    my ($id) = $r->{body} =~ /"id":\s*"(resp_\w+)"/;

    return $id // 'none';
}

# returns the status, and the reason of the choice

sub ask {
    my ($method, $uri, %headers) = @_;

    my $r = $t->request("$method $uri?n=a" . ++$n,
                        $method eq 'POST' ? '' : undef, headers => \%headers);

    return "$r->{status} " . $t->receipt("a$n")->{reason};
}

# --- under each policy

for my $p (@policies, 'queued') {
    my @ids = ((map { make($p) } 1 .. 3),
               (map { make($p, stream => JSON::PP::true) } 1 .. 3),
               (map { make($p, background => JSON::PP::true) } 1 .. 3));

    is(scalar(grep { /^resp_/ } @ids), 9, "$p: responses");

    is(join(', ', map { ask('GET', "/$p/v1/responses/$_") } @ids),
       join(', ', ('200 session') x 9), "$p: each is found");
    is(join(', ', map { ask('GET', "/$p/v1/responses/$_/input_items") }
                  @ids[0 .. 2]),
       join(', ', ('200 session') x 3), "$p: and its input");
    is(join(', ', map { ask('DELETE', "/$p/v1/responses/$_") } @ids[0 .. 2]),
       join(', ', ('200 session') x 3), "$p: and deleted");
    is(join(', ', map { ask('GET', "/$p/v1/responses/$_") } @ids[0 .. 2]),
       join(', ', ('404 session') x 3), "$p: the deleted ones are unknown there");
}

# --- in the background: polled, and cancelled

{
    my @ids = map { make('slow', background => JSON::PP::true) } 1 .. 4;

    for my $id (@ids) {
        is(join(', ', map { ask('GET', "/slow/v1/responses/$id") } 1 .. 3),
           join(', ', ('200 session') x 3), 'running');
        is(ask('POST', "/slow/v1/responses/$id/cancel"), '200 session',
           'cancelled');
    }

    is(join(' ', map { $t->control($_)->{open_requests} } @slow), '0 0',
       'indeed');
}

# --- an unknown id is routed like a request without a prompt

for my $p (@policies) {
    my $why = { round_robin => 'turn', sticky => 'turn', random => 'random' }
              ->{$p} || 'load';

    is(ask('GET', "/$p/v1/responses/resp_nobody"), "404 $why",
       "$p: an unknown id");
}

for my $id ('x' x 30_000, 'resp_' . 'x' x 30_000, 'resp_' . 'x' x 59,
            'resp_' . 'x' x 60, join('', map { sprintf '%%%02x', $_ } 1 .. 255),
            'resp_' . join('', map { sprintf '%%%02x', $_ } 200 .. 250),
            'resp_%0d%0aX:%201', 'resp_"\'<>', 'resp_', 'resp_%2f..%2f')
{
    my $r = ask('GET', "/kv_cache/v1/responses/$id") =~ s/ .*//r;

    like($r, qr/^40[045]$/, 'an invalid id: ' . substr $id, 0, 20);
    like(ask('POST', "/kv_cache/v1/responses/$id/cancel"), qr/^40[045] /,
         'to be cancelled');
}

is($t->get('/kvroute/json')->{status}, 200, 'nginx is fine');

# --- after a reload, after a kill, and only for the tenant of the response

my @ids = map { make('kv_cache') } 1 .. 6;

$t->reload();
is(join(', ', map { ask('GET', "/kv_cache/v1/responses/$_") } @ids),
   join(', ', ('200 session') x 6), 'after a reload');

$t->kill_worker($_) for $t->active_workers();
wait_for(sub { $t->active_workers() == $t->{workers} });
is(join(', ', map { ask('GET', "/kv_cache/v1/responses/$_") } @ids),
   join(', ', ('200 session') x 6), 'after a kill');

{
    my $id = make('salted', headers => { 'X-Tenant' => 'a' });

    is(ask('GET', "/salted/v1/responses/$id", 'X-Tenant' => 'a'),
       '200 session', 'a tenant');
    like(ask('GET', "/salted/v1/responses/$id", 'X-Tenant' => 'b'), qr/ load$/,
         'another tenant does not find it');
    like(ask('GET', "/off/v1/responses/$id", 'X-Tenant' => 'a'), qr/ bypass$/,
         'no look-up where the policy is off');
}

# --- an engine that ended, and one that restarted

{
    my @where = map { my $id = $_;
                      [ grep { my $r = $t->get("/v1/responses/$id",
                                               port => $e[$_]);
                               $r->{status} == 200 } 0 .. 2 ] } @ids;
    my ($there) = grep { "@{$where[$_]}" eq '2' } 0 .. $#ids;
    my ($other) = grep { "@{$where[$_]}" ne '2' } 0 .. $#ids;

    ok(defined $there && defined $other, 'on several engines');

    $t->{vars}{DOWN} = 'down';
    $t->conf($conf);
    $t->reload();

    like(ask('GET', "/kv_cache/v1/responses/$ids[$there]"), qr/^404 load$/,
         'its engine is down: another one answers');
    is(ask('GET', "/kv_cache/v1/responses/$ids[$other]"), '200 session',
       'the others are found');

    $t->control($e[$where[$other][0]], { restart => JSON::PP::true });
    is(ask('GET', "/kv_cache/v1/responses/$ids[$other]"), '404 session',
       'a restarted one does not have it any more');
}

ok($t->idle(), 'the counters are back at zero');

$t->done();
