#!/usr/bin/perl

# The policy "prefix"; prompts that all share a prefix under every policy;
# documents that are shared at other places.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

$t->backend("B$_") for 0 .. 4;
$t->{vars}{EXTRA} = '';
$t->{vars}{FOUR} = join "\n        ", map { "server 127.0.0.1:$t->{vars}{$_};" }
                   qw(B0 B1 B2 B3);

$t->upstream('u', 'kvroute prefix length=1k zone=z;',
             'B0 B1 B2 B3 max_fails=0', '%%EXTRA%%');
$t->upstream('weighted', 'kvroute prefix length=1k zone=z;', 'B0',
             'B1 weight=2', 'B2 weight=5');
$t->upstream('auto', 'kvroute prefix zone=hot;', '%%FOUR%%');
$t->upstream('fixed', 'kvroute prefix length=1k zone=fixedz;', '%%FOUR%%');
$t->upstream('few', 'kvroute prefix length=auto zone=fewz;', '%%FOUR%%');
$t->upstream('rag', 'kvroute kv_cache chunks=tie zone=ragz;', '%%FOUR%%');

my $conf = <<'EOF';
    %%LOG%%
    kvroute_zone zone=z:8m;

    # a zone of its own: what is shared is counted from the start

    kvroute_zone zone=hot:2m;

    kvroute_zone zone=fixedz:2m;

    kvroute_zone zone=fewz:2m;

    kvroute_zone zone=ragz:4m;

    client_body_buffer_size 1m;
    proxy_http_version 1.1;
    proxy_set_header Connection "";

    location / { proxy_pass http://u; }

    location /long/ {
        kvroute_policy prefix length=2k;
        proxy_pass http://u;
    }
    location /loose/ {
        kvroute_policy prefix length=1k load_factor=4;
        proxy_pass http://u;
    }

    location /kv_cache/ { kvroute_policy kv_cache; proxy_pass http://u; }
    location /random/ { kvroute_policy random; proxy_pass http://u; }
    location /sticky/ { kvroute_policy sticky; proxy_pass http://u; }
    location /round_robin/ {
        kvroute_policy round_robin;
        proxy_pass http://u;
    }
    location /least_request/ {
        kvroute_policy least_request;
        proxy_pass http://u;
    }

    location /rag/credit/ {
        kvroute_policy kv_cache chunks=credit;
        proxy_pass http://rag;
    }
    location /rag/off/ { kvroute_policy kv_cache; proxy_pass http://rag; }
EOF

$t->conf($conf);
$t->run();

my $seed = 5000;

sub fresh { return text($_[0] || 2000, $seed++) }


# what belongs together: the first length= bytes, however they are written

{
    my $head = fresh(1500);
    my $home = $t->to('/?n=first', chat($head));

    is($t->receipt('first')->{reason}, 'ring', 'the reason');

    my @to = map { $t->to('/', chat($head . fresh())) } 1 .. 8;
    is("@to", join(' ', ($home) x 8), 'the same beginning, the same peer');

    my $spaced = chat($head . 'x') =~ s/":/"  :\n /gr;
    is($t->to('/', $spaced), $home, 'the prompt counts, not the body');

    my $parts = chat([ { role => 'user', content =>
                         [ { type => 'text', text => $head } ] } ]);
    is($t->to('/', $parts), $home, 'text in parts is the same text');

    # longer than what they have in common

    @to = map { $t->to('/long/', chat($head . fresh())) } 1 .. 40;
    cmp_ok(scalar(keys %{$t->tally(@to)}), '>=', 3, 'length=2k: not the same');

    # no prompt, or one that is no block long

    is($t->post('/?n=none', 'not JSON')->{status}, 200, 'no prompt: served');
    is($t->receipt('none')->{reason}, 'unparsed', 'no prompt: by load');
    is($t->post('/?n=short', chat('hi'))->{status}, 200, 'short: served');
}

# spread, by weight; 160 points make shares of about one part in 12

my @prompts = map { chat(fresh()) } 1 .. 300;
my @home;

{
    @home = map { $t->to('/', $_) } @prompts;
    my $count = $t->tally(@home);

    cmp_ok($count->{"B$_"}, '>', 30, "spread: B$_ has its share") for 0 .. 3;

    $count = $t->tally(map { $t->to('/weighted/', $_) } @prompts);

    cmp_ok($count->{B2}, '>', $count->{B1}, 'weights: 5 before 2');
    cmp_ok($count->{B1}, '>', 0.9 * $count->{B0}, 'weights: 2 before 1');
    cmp_ok(abs($count->{B2} / 300 - 5 / 8), '<', 0.16, 'weights: 5 of 8');
}

# one peer more: about one prompt in five moves, and only to it

{
    $t->{vars}{EXTRA} = "server 127.0.0.1:$t->{vars}{B4};";
    $t->conf($conf);
    $t->reload();

    my @now = map { $t->to('/', $_) } @prompts;
    my @moved = grep { $now[$_] ne $home[$_] } 0 .. $#now;

    cmp_ok(@moved / @now, '>', 0.08, 'added: some prompts move');
    cmp_ok(@moved / @now, '<', 0.34, 'added: about one in five');
    is(scalar(grep { $now[$_] ne 'B4' } @moved), 0, 'added: to the new one');

    $t->{vars}{EXTRA} = '';
    $t->conf($conf);
    $t->reload();

    @now = map { $t->to('/', $_) } @prompts;
    is("@now", "@home", 'removed: all are back');
}

# a hot prompt: what is too much for its peer goes to the same second one

{
    my ($i, $j) = (0, 0);
    my ($hot, $home) = ($prompts[0], $home[0]);

    my $end = $t->hold(4, '/', $hot);
    is($t->peer('u', $t->{vars}{$home})->{active}, 4, 'up to 4 stay');

    my @over = map { $t->to("/?n=over$_", $hot) } 1 .. 4;
    isnt($over[0], $home, 'then it spills');
    is("@over", join(' ', ($over[0]) x 4), 'always to the same second');
    is($t->receipt('over1')->{reason}, 'spill', 'the reason is a spill');

    is($t->to('/loose/', $hot), $home, 'load_factor=4: it need not yet');

    # another peer's prompts stay where they are meanwhile

    my @rest = grep { $home[$_] ne $home && $home[$_] ne $over[0] } 0 .. 40;
    my @stray = grep { $t->to('/', $prompts[$_]) ne $home[$_] } @rest;
    is(scalar(@stray), 0, 'other prompts stay');

    # 4 more fill the second, then there is a third

    my $end2 = $t->hold(4, '/', $hot);
    is($t->peer('u', $t->{vars}{$over[0]})->{active}, 4, 'the second is full');
    my $third = $t->to('/', $hot);
    ok($third ne $home && $third ne $over[0], 'a third one');

    $end->();
    $end2->();

    is($t->to('/', $hot), $home, 'and home again');
}

# all prompts begin with the same block, or with the same 3000 bytes

my $system = fresh(3000);

sub alike {
    my ($n, $len) = @_;
    my $head = substr($system, 0, $len);

    return map { chat([ { role => 'user', content => $head . fresh(6000) } ]) }
           1 .. $n;
}

sub most {
    my $count = $t->tally(@_);
    my ($most) = sort { $b <=> $a } values %$count;

    return $most / @_;
}

for my $policy (qw(random round_robin least_request kv_cache sticky)) {
    my @to = map { $t->to("/$policy/", $_) } alike(60, 300);

    cmp_ok(most(@to), '<', 0.5, "all share block 0: $policy spreads them");
}

{
    my $before = $t->status()->{upstreams}{fixed}{shared_prefix};
    my @bodies = alike(150, 2000);
    my @to = map { $t->to('/fixed/', $_) } @bodies;
    my $shared = $t->status()->{upstreams}{fixed}{shared_prefix} - $before;

    is(most(@to), 1, 'length=1k: all share it, all go to one peer');
    cmp_ok($shared, '>', 0, 'which the status tells');

    # length=auto finds out, and is of one mind then

    $t->to('/auto/', $_) for @bodies;
    my @first = map { $t->to('/auto/', $_) } @bodies;
    my @second = map { $t->to('/auto/', $_) } @bodies;
    my @moved = grep { $first[$_] ne $second[$_] } 0 .. $#first;

    cmp_ok(most(@first), '<', 0.5, 'length=auto: spreads them');
    cmp_ok(scalar(@moved), '<=', 3, 'length=auto: and keeps them');
    is($t->status()->{upstreams}{auto}{shared_prefix}, 0,
       'length=auto: not by what they share');
}

# few conversations: each stays, though it is a large part of all there is

{
    my @talk = map { [ { role => 'system', content => $system },
                       { role => 'user', content => fresh(4000) } ] } 1 .. 4;
    my @last = ('') x 4;
    my $moves = 0;

    for my $turn (1 .. 30) {
        for my $i (0 .. 3) {
            my $to = $t->to('/few/', chat($talk[$i]));

            $moves++ if $last[$i] ne $to && $last[$i] ne '';
            $last[$i] = $to;

            push @{$talk[$i]}, { role => 'assistant', content => "ok $turn" },
                               { role => 'user', content => fresh(400) };
        }
    }

    # of 116; a key that is not deep enough any more is given up twice

    cmp_ok($moves, '<=', 24, 'length=auto: four conversations stay');
}

# documents that are shared, in another order, behind other text

{
    my @docs = map { join "\n\n", map { fresh(900) } 1 .. 5 } 1 .. 24;

    my $ask = sub {
        my ($uri, @which) = @_;
        return $t->alone("/rag/$uri", chat(join("\n\n",
                      'question ' . fresh(300), @docs[@which], fresh(200))));
    };

    # 8 groups of 3 documents; each group is asked about once

    my @home = map { $ask->("?n=g$_", 3 * $_ .. 3 * $_ + 2) } 0 .. 7;
    is_deeply($t->tally(@home), { map { ("B$_" => 2) } 0 .. 3 },
              'documents: first seen in turn');

    # in an order in which taking turns would not do by accident

    my @order = (5, 2, 7, 0, 3, 6, 1);
    my $home = join ' ', @home[@order];

    my @again = map { $ask->('', 3 * $_ + 2, 3 * $_, 3 * $_ + 1) } @order;
    is("@again", $home, 'documents shuffled, behind another question');

    my @part = map { $ask->('', 3 * $_ + 1) } @order;
    is("@part", $home, 'one of the documents');

    $docs[3 * $_] =~ s/.{40}/changed/ for 0 .. 7;
    my @edited = map { $ask->('', 3 * $_ + 1, 3 * $_) } @order;
    is("@edited", $home, 'one document edited');

    my @credit = map { $ask->('credit/', 3 * $_ + 2, 3 * $_) } @order;
    is("@credit", $home, 'chunks=credit');

    # without, it is a matter of turns

    my @off = map { $ask->('off/', 3 * $_ + 2, 3 * $_) } (@order) x 2;
    isnt("@off", "$home $home", 'chunks=off');
}

ok($t->idle(), 'nothing is counted any more');

$t->done();
