#!/usr/bin/perl

# Homes: two hosts that share nothing send a prefix to the same server if both
# have hosts= and one key, or share by an unreachable store; otherwise they do
# not.

use lib 't/lib';
use Kvroute;

use JSON::PP;
use MIME::Base64;

my $t = Kvroute->new();
my $other = Kvroute->new();

for my $name (map { "B$_" } 0 .. 3) {
    $t->backend($name);
    $other->{vars}{$name} = $t->{vars}{$name};
}

my $key = encode_base64(join '', map { chr int rand 256 } 1 .. 192);

sub conf {
    my ($h, @servers) = @_;

    my $servers = join "\n", map { "server 127.0.0.1:%%B$_%%;" } @servers;

    Kvroute::write_file("$h->{dir}/key", $key);
    chmod 0600, "$h->{dir}/key";

    $h->conf(<<"EOC");
    kvroute_zone zone=h:4m key_file=key hosts=2;
    kvroute_zone zone=a:4m key_file=key;
    kvroute_zone zone=d:4m key_file=key;
    kvroute_share zone=d server=redis://127.0.0.1:1;

    upstream home {
        zone home 64k;
        kvroute kv_cache zone=h;
        $servers
    }
    upstream apart {
        zone apart 64k;
        kvroute kv_cache zone=a;
        $servers
    }
    upstream down {
        zone down 64k;
        kvroute kv_cache zone=d;
        $servers
    }
    upstream session {
        zone session 64k;
        kvroute sticky zone=h;
        $servers
    }
    upstream alone {
        zone alone 64k;
        kvroute sticky zone=a;
        $servers
    }

    add_header X-Reason \$kvroute_reason;
    add_header X-Matched \$kvroute_matched_bytes;
    location /home/ { proxy_pass http://home; }
    location /apart/ { proxy_pass http://apart; }
    location /down/ { proxy_pass http://down; }
    location /session/ { proxy_pass http://session; }
    location /alone/ { proxy_pass http://alone; }
EOC
}

# each turn of a conversation begins with the one before, after a shared system
# prompt; long enough that a request which is answered but still counted is no
# reason to use the second home

my $system = text(400, 1);

sub turn {
    my ($n, $turns) = @_;

    my @text = map { text(6000, 10 * $n + $_) } 1 .. $turns;
    my @messages = { role => 'system', content => $system };

    for my $i (0 .. $#text) {
        push @messages, { role => $i % 2 ? 'assistant' : 'user',
                          content => $text[$i] };
    }

    return JSON::PP->new->canonical->encode({
        model => 'm', messages => \@messages
    });
}

conf($_, 0 .. 3) for $t, $other;
$_->run() for $t, $other;


# first turns through one host, the next through the other; in another order,
# because idle servers get cold prompts in turn and both hosts would keep in
# step

sub talk {
    my ($uri) = @_;

    my (%second, %reason);
    my @first = map { $t->to($uri, turn($_, 1)) } 1 .. 100;

    for my $n (sort { $a * 47 % 101 <=> $b * 47 % 101 } 1 .. 100) {
        my $r = $other->post($uri, turn($n, 3));
        $reason{$r->{headers}{'x-reason'}}++;
        $second{$n} = $t->from($r);
    }

    return ((scalar grep { $first[$_ - 1] eq $second{$_} } 1 .. 100),
            [ values %second ], \%reason);
}

# the shared prefix has to be seen first

for my $uri ('/home/', '/apart/', '/down/') {
    for my $n (1001 .. 1040) {
        $_->post($uri, turn($n, 1)) for $t, $other;
    }
}

my ($same, $home, $reason) = talk('/home/');
my ($chance) = talk('/apart/');
my ($down) = talk('/down/');

cmp_ok($same, '>=', 90, "homes: the next turn finds $same of 100 caches");
cmp_ok($chance, '<=', 60, "without: $chance");
cmp_ok($down, '>=', 90, "hosts that should share and cannot: $down");
cmp_ok($reason->{home} || 0, '>=', 50, 'the reason is "home"');
is(scalar(keys %{$t->tally(@$home)}), 4, 'all servers are used');

my $decisions = $other->status()->{upstreams}{home}{decisions};
cmp_ok($decisions->{home} || 0, '>=', 50, 'and counted');

# sessions are bound to the same servers

sub sessions {
    my ($h, $uri, @n) = @_;

    return map {
        $h->to($uri, chat('hello'), 'X-Session-Id' => "s$_")
    } @n ? @n : 1 .. 100;
}

my @bound = sessions($t, '/session/');

is_deeply([sessions($other, '/session/')], \@bound, 'sessions: two hosts agree');
is_deeply([sessions($t, '/session/')], \@bound, 'and they stay');
is(scalar(keys %{$t->tally(@bound)}), 4, 'at all servers');

my @alone = sessions($t, '/alone/');
my @elsewhere = reverse sessions($other, '/alone/', reverse 1 .. 100);

cmp_ok(scalar(grep { $alone[$_] eq $elsewhere[$_] } 0 .. 99), '<', 80,
       'without: two hosts do not agree');

# a restarted host with one server less: only that server's sessions move

$other->stop();
conf($other, 2, 0, 1);
$other->run();

my @less = sessions($other, '/session/');

is(scalar(grep { $less[$_] ne $bound[$_] && $bound[$_] ne 'B3' } 0 .. 99), 0,
   'a server less: no other session moves');
is(scalar(grep { $_ eq 'B3' } @less), 0, 'and that one gets none');

$other->quit();
$t->done();
