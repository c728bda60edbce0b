#!/usr/bin/perl

# The policies by load and prompt, and where they can be set: upstreams,
# locations, "if", inherited, replaced and switched off.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

$t->backend("B$_") for 0 .. 3;

$t->upstream('u', 'kvroute round_robin zone=z;', 'B0 B1 B2 B3 max_fails=0');
$t->upstream('weighted', 'kvroute random zone=z;', 'B0', 'B1 weight=2',
             'B2 weight=5', 'B3 down');
$t->upstream('plain', 'plain', 'B0', 'B1 weight=2', 'B2 weight=5', 'B3 down');
$t->upstream('lr', 'kvroute least_request zone=z;', 'B0 B1 B2');

$t->conf(<<'EOF');
    %%LOG%%
    kvroute_zone zone=z:4m;

    client_body_buffer_size 1m;
    proxy_buffering off;
    proxy_http_version 1.1;
    proxy_set_header Connection "";

    location / { proxy_pass http://u; }
    location /lr/ { kvroute_pin $http_x_peer; proxy_pass http://lr; }

    location /rr/ {
        kvroute_policy round_robin;
        proxy_pass http://weighted;
    }
    location /lw/ {
        kvroute_policy least_conn;
        proxy_pass http://weighted;
    }
    location /kv/ {
        kvroute_policy kv_cache;
        proxy_pass http://u;

        location /kv/tenant/ {
            kvroute_salt $http_x_tenant;
            proxy_pass http://u;
        }
        location /kv/inherited/ { proxy_pass http://u; }

        location /kv/random/ {
            kvroute_policy random;
            proxy_pass http://u;
        }
        location /kv/off/ { kvroute_policy off; proxy_pass http://u; }
        location /kv/if/ {
            if ($arg_spread) {
                kvroute_policy round_robin;
                proxy_pass http://u;
            }

            # "if" without a policy has the location's

            if ($arg_same) {
                proxy_pass http://u;
            }

            proxy_pass http://u;
        }
    }
    location /bypass/ {
        kvroute_policy kv_cache;
        if ($arg_no) { kvroute_policy off; }
        if ($http_x_no) { kvroute_policy off; }
        proxy_pass http://u;
    }
    location /pin/ {
        kvroute_policy kv_cache;
        kvroute_pin $http_x_peer;
        proxy_pass http://u;
    }
    location /pin/weighted/ {
        kvroute_pin $http_x_peer;
        proxy_pass http://weighted;
    }
EOF

$t->run();

my $seed = 1000;

sub fresh { return chat(text($_[0] || 4000, $seed++)) }


# tenants are not models: a loaded model is loaded for all of them

{
    $t->to('/kv/tenant/', fresh(), 'X-Tenant' => 'b');

    my @to = map { $t->alone('/kv/tenant/', fresh(), 'X-Tenant' => 'a') }
             1 .. 8;

    is_deeply($t->tally(@to), { B0 => 2, B1 => 2, B2 => 2, B3 => 2 },
              'kv_cache: a tenant is spread');
}

# random: by weight, each choice independent of the one before

{
    my @to = map { $t->to('/weighted/', '{"prompt":"x"}') } 1 .. 800;

    $t->is_spread($t->tally(@to), { B0 => 1, B1 => 2, B2 => 5 },
                  'random: in proportion to the weights');

    my $last = '';
    my @after = map { my $l = $last; $last = $_; $l eq 'B2' ? $_ : () } @to;

    $t->is_spread($t->tally(@after), { B0 => 1, B1 => 2, B2 => 5 },
                  'random: also after the heaviest one');

    $t->to('/weighted/?n=random', '{"prompt":"x"}');
    is($t->receipt('random')->{reason}, 'random', 'random: the reason');
    is($t->receipt('random')->{policy}, 'random', 'random: the policy');
}

# round_robin: nginx's own sequence, exactly

{
    my @nginx = map { $t->to('/plain/', '{"prompt":"x"}') } 1 .. 24;
    my @ours = map { $t->to('/rr/', '{"prompt":"x"}') } 1 .. 24;

    is("@ours", "@nginx", 'round_robin: as nginx');
    $t->to('/rr/?n=rr', '{"prompt":"x"}');
    is($t->receipt('rr')->{reason}, 'turn', 'round_robin: the reason');
}

# least_request: ties take turns, by weight

{
    my @to = map { $t->alone('/lr/', '{"prompt":"x"}') } 1 .. 60;

    is_deeply($t->tally(@to), { B0 => 20, B1 => 20, B2 => 20 },
              'least_request: ties take turns');

    my $streak = 0;
    $to[$_] eq $to[$_ - 1] and $streak++ for 1 .. $#to;
    is($streak, 0, 'least_request: never the same twice in a row');

    @to = map { $t->alone('/lw/', '{"prompt":"x"}') } 1 .. 80;
    my $count = $t->tally(@to);

    cmp_ok(abs($count->{"B$_->[0]"} / 10 - $_->[1]), '<', 0.25 * $_->[1],
           "least_request: B$_->[0] by its weight")
        for [ 0, 1 ], [ 1, 2 ], [ 2, 5 ];
}

# B0 has a large prompt, the others two small ones each

sub pinned { return ('X-Peer' => "127.0.0.1:$t->{vars}{$_[0]}") }

{
    my @end = ($t->hold(1, '/lr/', fresh(60000), pinned('B0')),
               $t->hold(2, '/lr/', chat('hello'), pinned('B1')),
               $t->hold(2, '/lr/', chat('hello'), pinned('B2')));

    is($t->to('/lr/', chat('x')), 'B0', 'the fewest requests');

    $_->() for @end;
}

# location policies

{
    my $body = fresh();
    my $home = $t->to('/kv/?n=l1', $body);

    is($t->receipt('l1')->{policy}, 'kv_cache', 'location: its own');
    is($t->to('/kv/?n=l2', $body), $home, 'location: stays');
    is($t->receipt('l2')->{reason}, 'affinity', 'location: affinity');

    is($t->to('/kv/inherited/?n=l3', $body), $home, 'inherited: stays');
    is($t->receipt('l3')->{policy}, 'kv_cache', 'inherited: the policy');

    my $to = $t->tally(map { $t->to('/kv/random/', $body) } 1 .. 200);
    $t->is_spread($to, { map { ("B$_" => 1) } 0 .. 3 }, 'replaced: random');

    $to = $t->tally(map { $t->to('/kv/if/?spread=1', $body) } 1 .. 8);
    is_deeply($to, { map { ("B$_" => 2) } 0 .. 3 }, 'if: round robin');
    is($t->to('/kv/if/?n=l4', $body), $home, 'if not: the location\'s');
    is($t->to('/kv/if/?same=1&n=l5', $body), $home, 'if without a policy');
    is($t->receipt('l5')->{policy}, 'kv_cache', 'if without: inherited');

    $to = $t->tally(map { $t->to("/kv/off/", $body) } 1 .. 8);
    is_deeply($to, { map { ("B$_" => 2) } 0 .. 3 }, 'off: nginx\'s own');
    $t->to('/kv/off/?n=l6', $body);
    is($t->receipt('l6')->{policy}, 'off', 'off: the policy');
    is($t->receipt('l6')->{reason}, 'bypass', 'off: the reason');

    # an upstream's policy, if the location sets none

    $to = $t->tally(map { $t->to('/', $body) } 1 .. 8);
    is_deeply($to, { map { ("B$_" => 2) } 0 .. 3 }, 'the upstream\'s own');
}

# bypass: nginx's own round robin for this request

{
    my $body = fresh();
    my $home = $t->to('/bypass/?n=y1', $body);

    is($t->to('/bypass/', $body), $home, 'no bypass');
    is($t->to('/bypass/?no=0', $body), $home, 'no bypass by "0"');

    my @to = map { $t->to('/bypass/?no=1', $body) } 1 .. 4;
    is_deeply([ sort @to ], [ qw(B0 B1 B2 B3) ], 'bypassed by a variable');
    @to = map { $t->to('/bypass/', $body, 'X-No' => 'yes') } 1 .. 4;
    is_deeply([ sort @to ], [ qw(B0 B1 B2 B3) ], 'bypassed by another variable');

    $t->to('/bypass/?no=1&n=y2', $body);
    is($t->receipt('y2')->{reason}, 'bypass', 'bypass: the reason');
}

# pins

{
    my $body = fresh();
    my $home = $t->to('/pin/?n=p0', $body);
    my ($other) = grep { $_ ne $home } qw(B0 B1 B2 B3);
    my $addr = "127.0.0.1:$t->{vars}{$other}";

    is($t->to('/pin/?n=p1', $body, 'X-Peer' => $addr), $other, 'pinned');
    is($t->receipt('p1')->{reason}, 'pinned', 'pin: the reason');

    is($t->from($t->get('/pin/?n=p2', headers => { 'X-Peer' => $addr })),
       $other, 'pinned without a body');

    # it has the prompt cached now, like any chosen server

    is($t->receipt('p1')->{matched}, 0, 'pin: not cached before');
    $t->to('/pin/?n=p3', $body, 'X-Peer' => $addr);
    cmp_ok($t->receipt('p3')->{matched}, '>', 3500, 'pin: cached afterwards');

    for my $bad ('127.0.0.1:1', 'nonsense', 'x' x 500, '127.0.0.1') {
        my $id = 'bad' . length $bad;
        my $r = $t->post("/pin/?n=$id", $body, headers => { 'X-Peer' => $bad });
        is($r->{status}, 200, 'a bad pin does no harm');
        is($t->receipt($id)->{reason}, 'unpinned', 'and the reason says so');
    }

    # a server that is down is not used

    $t->to('/pin/weighted/?n=p4', $body,
           'X-Peer' => "127.0.0.1:$t->{vars}{B3}");
    is($t->receipt('p4')->{reason}, 'unpinned', 'pinned to one that is down');
    isnt($t->receipt('p4')->{name}, 'B3', 'and not used');

    $t->to('/pin/?n=p5', $body);
    is($t->receipt('p5')->{reason}, 'affinity', 'no pin, no effect');
}

# prompts that cannot be parsed are routed by load

{
    my @to = map { $t->alone("/kv/?n=u$_", 'not JSON') } 1 .. 8;

    is_deeply($t->tally(@to), { map { ("B$_" => 2) } 0 .. 3 },
              'unparsed: spread');
    is($t->receipt('u1')->{reason}, 'unparsed', 'unparsed: the reason');
}

ok($t->idle(), 'the counters are back at zero');

$t->done();
