#!/usr/bin/perl

# One prompt in 64 concurrent requests on 4 peers.

use lib 't/lib';
use Kvroute;

use List::Util qw(max min sum);

my $t = Kvroute->new();
my @names = map { "B$_" } 0 .. 3;

$t->backend($_) for @names;

my @cases = map { [ $_, /^(kv_cache|least_request)/ ] }
            qw(kv_cache_cold least_request_cold kv_cache_8k
               kv_cache_32k kv_cache_shared);

$t->upstream($_->[0], "kvroute $_->[1] zone=z;", "@names") for @cases;

$t->conf(<<'EOF')->run();
    %%LOG%%
    kvroute_zone zone=z:4m;
    client_body_buffer_size 1m;
    lingering_close off;        # otherwise the log line comes five seconds later
    proxy_http_version 1.1;
    proxy_set_header Connection "";
EOF

sub active {
    my ($upstream) = @_;
    my $status = $t->status();

    return map { $t->peer($upstream, $t->{vars}{$_}, $status)->{active} }
           @names;
}

# sends this many at once, all in flight; returns how many each peer has

sub burst {
    my ($n, $upstream, $body) = @_;

    my @open = map { $t->start("POST /$upstream/", $body, headers => {
        map { ("X-$_" => "wait burst-$upstream") } @names }) } 1 .. $n;

    ok(wait_for(sub { sum(active($upstream)) == $n }), "$upstream: in flight");

    my @active = active($upstream);

    $t->step("burst-$upstream");

    my $good = grep { $t->finish($_)->{status} == 200 } @open;

    is($good, $n, "$upstream: all are served");
    ok($t->idle(), "$upstream: none in flight");

    return @active;
}


# all cold, before the first token

for my $policy (qw(kv_cache least_request)) {
    my @active = burst(64, "${policy}_cold", chat(text(8000, 1)));

    cmp_ok(max(@active), '<=', 1.5 * min(@active), "$policy, cold: even")
        or diag("@active");
}

# Warm on one peer.  The k-th request in flight stays while
#
#     pending + 400 * k + k * (prompt + 8) / 96
#     + max(uncached, 2048) * (1 + 64 * k / (320 + k))
#     + uncached * 3 / 4
#
# at the holder is less than 1.75 times the whole prompt, which is the cost at an idle
# peer.  (The requests ask for two tokens, which count as 8 bytes.)  Of the cached
# bytes, n / (n + 2) are used by others, where n is the number of requests that ended
# with them.  n is one here, and halves in 41 seconds: on a slow machine more requests
# stay.

sub staying {
    my ($r, $n) = @_;

    my $uncached = $r->{prompt} - $r->{matched};
    my $k = 0;

    $k++ while $k * $uncached + 400 * $k + $k * ($r->{prompt} + 8) / 96
               + max($uncached, 2048) * (1 + 64 * $k / (320 + $k))
               + $uncached * 3 / 4
               < 1.75 * ($r->{prompt} - $r->{matched} * $n / ($n + 2));

    return $k;
}

for my $size (8192, 32768) {
    my $upstream = $size == 8192 ? 'kv_cache_8k' : 'kv_cache_32k';
    my $body = chat(text($size, $size));

    my $began = time();
    my $home = $t->to("/$upstream/", $body);
    $t->to("/$upstream/?n=warm$size", $body);

    my $r = $t->receipt("warm$size");
    my $uncached = $r->{prompt} - $r->{matched};

    is($r->{name}, $home, "$size: warm");
    like($r->{cost} - 0.75 * $uncached, qr/^204[789]/, "$size: its cost");
    cmp_ok($uncached, '<', 256, "$size: except a partial block");

    my $k = staying($r, 1);

    # $k of them stay, and no more

    my $end = $t->hold($k + 1, "/$upstream/?n=k$size", $body);
    my %active;
    @active{@names} = active($upstream);

    my $late = staying($r, 2 ** ((-2 - (time() - $began)) / 41));
    my $stay = $active{$home};

    ok($stay >= $k && $stay <= $late, "$size: $k stay, as the formula says")
        or diag("$stay, at most $late");
    is(sum(values %active), $k + 1, "$size: the next one spills");
    $end->();

    my @lines;

    wait_for(sub {
        @lines = grep { /^k$size\|/ } split /\n/, $t->access_log();
        return @lines == $k + 1;
    });

    is_deeply($t->tally(map { (split /\|/)[4] } @lines),
              { affinity => $stay, $stay > $k ? () : (spill => 1) },
              "$size: reasons");
}

# A shared system prompt.  While few requests have used it, it stays where it
# was computed first.  After many, each other peer gets it once there is a
# request in flight for each.

sub shared {
    my ($n) = @_;

    return chat([ { role => 'system', content => text(16384, 7) },
                  { role => 'user', content => text(1600, 1000 + $n) } ]);
}

sub at_once {
    my ($name, @n) = @_;

    my @open = map { $t->start("POST /kv_cache_shared/?n=$name", shared($_),
                               headers => { map { ("X-$_" => "wait $name") }
                                            @names }) } @n;

    ok(wait_for(sub { sum(active('kv_cache_shared')) == @n }),
       "$name: in flight");

    my @active = active('kv_cache_shared');

    $t->step($name);
    is(scalar(grep { $t->finish($_)->{status} == 200 } @open), scalar @n,
       "$name: all are served");
    ok($t->idle(), "$name: none in flight");

    my @lines;

    wait_for(sub {
        @lines = grep { /^$name\|/ } split /\n/, $t->access_log();
        return @lines == @n;
    });

    return (\@active, $t->tally(map { (split /\|/)[4] } @lines));
}

my $home = $t->to('/kv_cache_shared/', shared(0));

{
    my ($active, $reasons) = at_once('few', 1 .. 4);

    is(max(@$active), 4, 'a shared prefix stays while few requests use it')
        or diag("@$active");
    is_deeply($reasons, { affinity => 4 }, 'the reason');
}

# without load it stays there, however many requests have used it

my %went;
$went{$t->to('/kv_cache_shared/', shared($_))}++ for 5 .. 60;

is_deeply(\%went, { $home => 56 }, 'one after another: it stays');

{
    my ($active, $reasons) = at_once('many', 61 .. 64);

    is_deeply($active, [ 1, 1, 1, 1 ], 'many have used it: one at each peer')
        or diag("@$active");
    is_deeply($reasons, { affinity => 1, hot => 3 },
              'computed again for later requests');
}

{
    my ($active, $reasons) = at_once('later', 65 .. 84);

    cmp_ok(max(@$active), '<=', 6, 'then all peers have it') or diag("@$active");
    is_deeply($reasons, { affinity => 20 }, 'and no peer computes it again');
}

ok($t->idle(), 'the counters are back at zero');

$t->done();
