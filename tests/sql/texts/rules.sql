true
false
bo
not bo
not not bo
bo and i > 0
bo or i > 0
bo and null
bo or null
not (bo and (i > 0 or d > 0))
bo = true
bo <> true
bo = false
true = bo
bo <=> true
bo <=> false
bo <=> null
bo is true
bo is false
bo is null
bo is unknown
bo is not true
bo is not false
bo is not null
bo is not unknown
not bo is true
bo > false
bo in (true)
bo in (true, null)
bo between false and true
(i > 1) is null
(i > 1) is true
(i > 1) is not false
i > 1 is true
(i > 1 or bo) is unknown
(i > 1) = true
(i > 1) <> (b > 1)
(i > 1) <=> true
(i > 1) is distinct from false
(s like 'a%') is null
i > 5
5 < i
i >= 5 and i <= 10
i = 5
i == 5
i <> 5
i != 5
i = -1
i = +1
i = - 1
i = null
i <> null
null > i
i <=> 5
5 <=> i
i <=> null
i is distinct from 5
i is not distinct from 5
i is distinct from null
i is null
i is not null
isnull(i)
isnotnull(i)
not isnull(s)
i between 1 and 5
i between 5 and 1
i not between 1 and 5
i between 1 and null
i between 0.5 and 5.5
i between 0 and b
i in (1, 5, 10)
i in (1, 5, null)
i not in (1, 5)
i not in (1, null)
i in (null)
i in (1)
i in (1, 2.5, 5.0)
i in (1, b)
i in (1e0, 5.0)
i > 2147483648
i > 0.5
i = 5.0
i = 5.5
i > 5e-1
i = 5L
i > 1.5D
i > 1.5BD
i = 5S
i > 1F
i % 10 = 5
i % 10 in (0, 5)
abs(i % 10) > 1
(i) > (5)
i > 1 and i > 1
i = cast(5 as int)
i = cast('5' as int)
i = cast(5.5 as int)
i & 1 = 1
i | 2 & 1 = 3
i ^ 1 = 4
i + 0 = 5 or i < 100 + 1
60 * 60 > i
b > 5
b = 9007199254740993
b = 9007199254740992e0
b > 9007199254740991e0
b > 9007199254740990e0
b = 5e0
b >= 0.5e0
b in (5, 9007199254740992e0)
b in (5, 1e0)
b in (1.00000000000000000001, 5e0)
b > 9223372036854775807
b > 9223372036854775808
b > -9223372036854775809
b < 0.5
not (b > 9223372036854775808)
b in (5, 9223372036854775808)
b = 9223372036854775808
i > 2147483647.5
i <= 2147483647.0
i in (5, 99999999999)
i = 99999999999999999999
de > 12345678901234567890
de in (1, 12345678901234567890)
9223372036854775808 > b
b = 5.00
i = b
i < b
f = 0.1
f = 0.1F
f = 0.5F
f = 0.5
f > 0.1
f > 16777217
f = 16777216
f = 1
f in (0.5, 1)
f in (0, 1)
f = 0
f > 1e300
f is null
f = f
f between 0 and 1
d = 0.1
d = 0
d = -0.0
d > 0
d >= -0.0
d < 1
d > 1e308
d = 5
d in (0, 1)
d in (1, 5, 0.1)
d in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
d in (0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)
d not in (0.5, 1, null)
d between 0 and 1
d = 1F
d = 9007199254740993
d = cast('NaN' as double)
d > 0.1D
d <=> 0.1
d = 5e-324
isnan(d)
de = 0.1
de = 1
de > 0.105
de in (0, 0.1, 1.00)
de between 0.05 and 1
de = 0.1e0
de <> 0.10
de > 99999999
s = 'a'
s <> 'a'
'a' = s
s = ''
s = 'it''s'
s = 'it\'s'
s = 'a' 'b'
s = "ab"
s = r'a\b'
s = 'a\\b'
s = 'a\nb'
s = '\u0041'
s = '${x}'
s = '\u0024{x}' or s < '\u0024{x}'
s in ('a', 'ab', 'zz')
s in ('a', null)
s not in ('a', '')
s < 'b'
s >= 'a' and s < 'b'
s between 'a' and 'b'
s = t
s < t
s <=> 'a'
s <=> t
s is distinct from 'a'
s is null or t is null
s like 'a%'
s like '%b'
s like '%b%'
s like 'a_b'
s like '_'
s like '__'
s like '%'
s like ''
s like 'a\%b'
s like 'a\\%b'
s like 'a\_b'
s like 'a\\\\b'
s like 'a!%b' escape '!'
s like 'a!_%' escape '!'
s like 'aab' escape 'a'
s not like 'a%'
s not like 'a!%b' escape '!'
s like '%a%b%'
s like 'a😀b'
s like 'a_b%'
s like '%😀%'
s ilike 'AB'
s ilike 'a%'
s ilike '%İ%'
s ilike 'İ'
s ilike '_'
s ilike 'k'
s ilike 'ß'
s ilike 'ΑΣ'
s ilike 'ΑΣ%'
s ilike '%Σ'
s not ilike '%B%'
s ilike 'A!%B' escape '!'
s like any ('a%', '%b')
s like all ('a%', '%b')
s not like any ('a%', '%b')
s not like all ('a%', '%b')
s like some ('a%')
s ilike any ('A%', 'x%')
s ilike any ('A%', 'İ')
s like any ('a%', t)
s like 'a' || '%'
s like t
contains(s, 'b')
contains(s, '')
startswith(s, 'a')
endswith(s, 'b')
contains(s, t)
contains('abc', s)
contains(s, null)
not contains(s, 'a%')
contains(lower(s), 'b')
startswith(lower(s), 'AB')
endswith(lower(s), 'σ')
endswith(lower(s), 'ς')
lower(s) = 'ab'
lower(s) = 'AB'
lower(s) = ''
lower(s) <> 'ab'
lower(s) in ('ab', 'k')
lower(s) in ('AB', 'k')
lower(s) in ('AB', 'K')
lower(s) not in ('ab', null)
lower(s) like '%b'
lower(s) like 'A%'
lower(s) like '_'
lower(s) like 'i%'
lcase(s) = 'k'
lower(s) <=> 'ab'
lower(s) is null
upper(s) = 'SS'
lower(lower(s)) = 'ab'
lower(s) ilike 'AB'
lower(s || t) = 'ab'
s rlike 'ab'
s rlike '^ab$'
s rlike '(?i)ab'
s rlike '(?i)k'
s rlike '(?i)foo|cmd'
s rlike 'a.b'
s rlike '(?s)a.b'
s rlike 'xy?$'
s rlike 'error\\s+\\d+'
s rlike r'error\s+\d+'
s rlike '[a-c]b[^x]?'
s rlike 'foo (bar|baz)'
s rlike 'cmd\\.exe\\s+/c'
s rlike '.*'
s rlike '\\bfoo\\b'
s rlike 'a{2,}b|ab{1,3}'
s not rlike 'ab'
regexp_like(s, 'ab')
rlike(s, 'ab|AB')
s regexp '^foo'
s rlike '(?i)É'
length(s) > 2
length(s) = 1 or length(t) = 1
substring(s, 1, 2) = 'ab'
substring(s from 1 for 1) = 'a'
trim(s) = 'a'
trim(both ' ' from s) = 'a'
position('b' in s) = 2
instr(s, 'b') > 0
s || 'x' = 'ax'
concat(s, t) = 'ab'
coalesce(s, 'x') = 'x'
cast(i as string) = '5'
cast(i as string) like '5%'
i like '5%'
left(s, 1) = 'a' and right(s, 1) = 'b'
replace(s, 'a', 'b') = 'bb'
try_cast(s as int) = 5
try_cast(s as int) > 2.5
s::string = 'a'
dt = '2024-01-31'
dt = date '2024-01-31'
dt >= '2024-02-01'
'2024-02-01' <= dt
dt between '2024-01-01' and date '2024-12-31'
dt in ('2024-01-31', '2024-02-29')
dt in ('2024-01-31', date '2024-02-29', null)
dt <> '2024-01-31'
dt > current_date
dt is null
year(dt) = 2024
extract(month from dt) = 2
dt < ts
ts > '2024-01-01'
ts > timestamp '2024-01-01 00:00:00'
ts > now() - interval 1 day
hour(ts) = 23
ts is null
xs is null
size(xs) > 1
array_contains(xs, 1)
st.a = 5
st.b = 'ab'
st.b like 'a%'
st is null
st.a is not null
co = 'a'
co like 'A%'
lower(co) = 'a'
co in ('a', 'b')
co is null
case when i > 1 then bo else s = 'a' end
case i when 1 then true when 5 then null else false end
if(i > 1, bo, d > 0)
if(i > 1, bo, d > 0) and s = 'a'
coalesce(bo, true)
nvl(bo, false) or i = 5
nullif(i, 5) is null
nullif(i, 5) = 1
greatest(i, 3) > 3
equal_null(i, 5)
try_divide(i, b) > 2
try_add(i, 1) > 5
1 = 1
1 = 1 and i = 5
'a' like 'a'
null is null
null or i = 5
not null
i > 1 -- a comment
i > 1 /* one */ and /* two */ d > 0
i in (1, 2, 3) or s in ('a', 'b') and not (t = 'a' or t is null)
(((i = 5)))
((i = 5) or (b = 5)) and ((d = 5) or (f = 1))
I > 1 and `S` = 'a'
