#!/usr/bin/perl

# The key of a zone: two hosts with the same key send prompts to the same
# servers.  A bad key is rejected, and keys are never shown.

use lib 't/lib';
use Kvroute;

use MIME::Base64;
use POSIX qw(mkfifo);

my $t = Kvroute->new();
my $other = Kvroute->new();

for my $name (map { "B$_" } 0 .. 3) {
    $t->backend($name);
    $other->{vars}{$name} = $t->{vars}{$name};
}

sub random_key { return join '', map { chr int rand 256 } 1 .. 192 }

sub put {
    my ($h, $text, $mode) = @_;

    unlink "$h->{dir}/key";
    Kvroute::write_file("$h->{dir}/key", $text);
    chmod $mode || 0600, "$h->{dir}/key";
}

sub conf {
    my ($h, $keyed, $random) = @_;

    my $servers = join "\n", map { "server 127.0.0.1:%%B$_%%;" } 0 .. 3;

    # homes show the key: each prompt has one, equal for equal keys

    $keyed .= ' hosts=2' if $keyed =~ /key_file/;

    $h->conf(<<"EOC");
    kvroute_zone zone=k:$keyed;
    kvroute_zone zone=r:$random;

    upstream keyed {
        zone keyed 64k;
        kvroute zone=k;
        $servers
    }
    upstream random {
        zone random 64k;
        kvroute zone=r;
        $servers
    }

    location /keyed/ { proxy_pass http://keyed; }
    location /random/ { proxy_pass http://random; }
EOC
}

my @prompts = map { chat(text(2000, $_)) } 1 .. 200;

sub homes {
    my ($h, $uri) = @_;
    return map { $h->to($uri, $_) } @prompts;
}

sub same {
    my ($one, $two) = @_;
    return scalar grep { $one->[$_] eq $two->[$_] } 0 .. $#prompts;
}


# with an absolute path, and with one relative to the configuration, in lines of
# another length

my $key = random_key();
my $text = encode_base64($key);

put($t, $text);
put($other, encode_base64($key, "\r\n"), 0640);

conf($t, "2m key_file=$t->{dir}/key", '2m');
conf($other, '2m key_file=key', '2m');

$_->run() for $t, $other;

my @keyed = homes($t, '/keyed/');
is(scalar(keys %{$t->tally(@keyed)}), 4, 'all servers are used');
is(same(\@keyed, [homes($other, '/keyed/')]), 200,
   'one key: two hosts agree on all prompts');

# a new zone

conf($t, '3m key_file=key', '3m');
$t->reload();

is(same(\@keyed, [homes($t, '/keyed/')]), 200, 'a new zone: no prompt moves');


# the zone's content was hashed with its key: the key cannot change meanwhile

my @random = homes($t, '/random/');

my $generation = $t->status()->{zones}{k}{generation};
my $restart = 'restart nginx or change its size';

for my $case ([ 'another key', '3m key_file=key', '3m',
                qr/"k" uses another key in its key_file .*$restart/ ],
              [ 'the key is left out', '3m', '3m',
                qr/"k" uses no key_file while previously .*$restart/ ],
              [ 'a key is added', '3m key_file=key', '3m key_file=key',
                qr/"r" uses a key_file while previously .*$restart/ ])
{
    my ($name, $k, $r, $re) = @$case;

    put($t, $name =~ /another/ ? encode_base64(random_key()) : $text);
    conf($t, $k, $r);
    $t->expect_log($re);
    kill 'HUP', $t->{master};
    ok(wait_for(sub { $t->log() =~ $re }), "$name: refused");
}

put($t, $text);

is($t->status()->{zones}{k}{generation}, $generation, 'no new generation');
is(same(\@keyed, [homes($t, '/keyed/')]), 200, 'the old workers continue');

conf($t, '3m key_file=key', '3m');
$t->reload();

is($t->status()->{zones}{k}{generation}, $generation + 1, 'the same key');
is(same(\@random, [homes($t, '/random/')]), 200,
   'a random secret outlasts a reload');


# rejected keys

my $shown = '';

$t->expect_log(qr/\[emerg\] .*key_file/);

sub bad {
    my ($name, $re, $text, $mode) = @_;

    put($t, $text, $mode);
    my ($ok, $out) = $t->check();

    ok(!$ok, "$name: refused");
    like($out, qr/key_file "\/key".*$re.* in \/nginx.conf:\d+$/m,
         "$name: says why");

    $shown .= $out;
}

my $how = qr/"head -c 192 \/dev\/urandom \| base64"/;
my $wrong = qr/does not have the right number of bytes in base64: make it with $how/;
my $weak = qr/is weak, its bytes are not random: make it with $how/;

bad('empty', $wrong, '');
bad('short', $wrong, encode_base64(substr $key, 0, 191));
bad('long', $wrong, encode_base64($key . 'x'));
bad('far too long', $wrong, encode_base64($key) x 100);
bad('not base64', $wrong, $text =~ s/^./!/r);
bad('a byte of zero', $wrong, $text =~ s/^./\0/r);
bad('not encoded', $wrong, $key);
bad('one byte', $weak, encode_base64("\0" x 192));
bad('repeated', $weak, encode_base64(substr($key, 0, 64) x 3));
bad('repeated once', $weak, encode_base64(substr($key, 0, 96) x 2));
bad('counting', $weak, encode_base64(pack 'C*', 1 .. 192));
bad('hex', $weak, encode_base64(unpack 'H*', substr $key, 0, 96));
bad('base64 twice', $weak, encode_base64(substr encode_base64($key, ''), 0, 192));
bad('readable by all', qr/open to all users, use "chmod o= \/key"/, $text, 0644);
bad('writable by all', qr/open to all users/, $text, 0602);

# random keys are far from the limit of rejection

for (1 .. 100) {
    my %seen = map { $_ => 1 } split //, random_key();
    next if keys %seen > 105;
    fail('random keys have ' . keys(%seen) . ' values');
}

unlink "$t->{dir}/key";

my ($ok, $out) = $t->check();
ok(!$ok, 'no file: refused');
like($out, qr/key_file "\/key".*failed \(2: No such file/, 'no file: says why');

mkfifo("$t->{dir}/key", 0600) or die "mkfifo: $!";

($ok, $out) = $t->check();
ok(!$ok, 'a FIFO: refused');
like($out, qr/key_file "\/key" is not a regular file/, 'a FIFO: says why');

unlink "$t->{dir}/key";
mkdir "$t->{dir}/key", 0700;

($ok, $out) = $t->check();
ok(!$ok, 'a folder: refused');
like($out, qr/key_file "\/key" is not a regular file/, 'a folder: says why');

conf($t, '3m key_file=', '3m');
($ok, $out) = $t->check();
ok(!$ok, 'no name: refused');
like($out, qr/"key_file=" must be the name of a file/, 'no name: says why');


# keys are never shown

$shown .= join '', $t->log(), $other->log(),
                   map { $t->get("/kvroute/$_")->{body} }
                       qw(json prometheus html);

my @secrets = (split(/\n/, $text), $key, substr($text, 0, 12),
               unpack('H16', $key), substr($key, 0, 8));

is(scalar(grep { index($shown, $_) >= 0 } @secrets), 0, 'no key is shown');

$other->quit();
$t->done();
