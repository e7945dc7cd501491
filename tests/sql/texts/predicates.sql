i > 5
i + 1 > 5
i * b > 5
i - 1 < 0
ti + 1 > 3
ti + ti > 3
ti * ti * ti > 3
i % 10 = 3
i % ti = 0
b % i = 0
mod(i, 3) = 0
i / 2 > 1
i / b > 1
d / d > 1
d / 2 > 1
f / i >= 0
i div 2 = 1
b div i = 1
-i > 0
-d > 0
abs(i) > 0
abs(d) > 0
abs(ti + 0) > 0
d + f > 1
d * d > 1
de * 1.1 > 1
de + de > 1
de / 3 > 1
de / de > 1
de % 7 > 1
big * big > 1
big + big > 1
big * 2 > 1
big / 3 > 1
i * 1.5 > 1
i / 2.5 > 1
s > 5
s = 'x'
s < 2.5
s = i
s >= d
s = bo
s = dt
s > ts
s <> tn
s = 5 or s is null
s + 1 > 3
s * 2.5 > 3
s % 2 = 0
s = true
s = date '2024-01-31'
s in ('x', '')
s in (1, 2)
s between 'a' and 'z'
s between 1 and 2
i between '1' and 2
i between 1 and 2.5
i in (1, 2.5, b)
i in ('1', '2')
i + 1 in (0, 1, 2)
i + 1 in (0, null)
i + 1 between 0 and 5
5 between i + 1 and 7
5 between i and i + 1
i = '5'
i = '1.5'
i = 'x'
dt = '2024-01-31'
dt > 'x'
dt < ts
dt <= tn
ts > '2024-01-01'
ts > '2024-01-01 10:00:00.5'
ts > '2024-01-01 10:00Z'
ts > '2024-01-01T10:00:00+05:30'
tn > '2024-01-01 10:00:00.123456Z'
ts > '2024-01-01 24:00:00'
ts > date '2024-01-01'
ts > timestamp_ntz '2024-01-01'
tn = timestamp '2024-01-01'
ts < tn
ts > now() - interval 1 day
ts - interval 1 day < now()
dt + 1 > '2024-01-01'
dt + i > '2024-01-01'
dt - 1 < current_date
dt - dt > interval 1 day
cast(s as int) = 3
cast(s as tinyint) = 3
cast(s as double) > 2
cast(s as decimal(5,2)) > 2
cast(s as date) > '2024-01-01'
cast(s as timestamp) > '2024-01-01'
cast(s as boolean)
cast(s as string) = 'x'
cast(b as int) > 3
cast(b as double) > 3
cast(i as bigint) + 1 > 3
cast(ti as int) * 100 > 3
cast(d as int) > 3
cast(f as bigint) > 3
cast(d as decimal(10,2)) > 3
cast(de as int) > 3
cast(de as decimal(4,1)) > 3
cast(de as decimal(20,4)) > 3
cast(i as decimal(10,0)) > 3
cast(i as decimal(4,0)) > 3
cast(i as boolean)
cast(bo as int) = 1
cast(dt as timestamp) > now()
cast(ts as date) = dt
cast(ts as int) > 3
cast(i as timestamp) > now()
cast(i as string) like '1%'
int(s) = 3
s::int = 3
bigint(d) = 3
try_cast(s as int) = 3
try_add(i, 1) > 0
try_divide(i, ti) > 0
coalesce(i / b, 1) > 0
coalesce(i, 0) > 0
coalesce(i, s) = 1
coalesce(s, '') = ''
nullif(i, 0) is null
nullif(s, 1) is null
nvl(s, 'x') = 'x'
if(i <> 0, b / i, 0) > 1
if(bo, i, ti) > 1
case when i > 0 then s else 'x' end = 'x'
case s when 1 then 2 end = 2
case i when 1 then 2 else 3 end = 2
greatest(i, ti) > 3
least(d, 1.5) > 3
i / 2 > 1 and s > 5
not (s > 5)
not (i / ti > 1)
not bo
bo and s
not s
s is true
bo is not true
s is distinct from 5
i <=> b
s <=> 5
i / ti <=> 1
s like '%1%'
s like '\\%'
s like 'x\\'
s like 'x!%' escape '!'
s like 'x!' escape '!'
s like s
s like any ('a%', '%1')
s ilike 'X'
i like '1%'
s rlike '^[0-9]+$'
s rlike '(('
s rlike '{'
s rlike s
upper(s) = 'X'
substring(s, 1, 2) = 'x'
substring(s, i, 2) = 'x'
substring(s from 1 for 1) = 'x'
substring(s, b) = 'x'
trim(both 'x' from s) = ''
position('x' in s) = 1
length(s) * 2 > 3
length(s) + length(s) > 3
length(bi) > 0
i / length(s) > 0
i / (length(s) + 1) > 0
year(s) = 2024
year(dt) * 1000 > 3
hour(dt) = 0
hour(tn) = 0
extract(month from dt) = 2
date_part('day', ts) = 29
date_add(dt, 1) > '2024-01-01'
datediff(dt, '2024-01-01') > 0
floor(d) > 1
ceil(f) > 1
floor(i) > 1
round(d, 1) > 1
round(d) > 1
round(i, -1) > 1
xs[0] = 1
xs[i] = 1
m['a'] = 1
m['zz'] = 1
m[s] = 1
st.a > 1
st.a + 1 > 1
st.b > 5
size(xs) > 0
array_contains(xs, 1)
element_at(xs, 1) = 1
element_at(m, 'zz') = 1
i & 1 = 1
b | i > 0
~i > 0
i << 2 > 0
ti ^ 3 > 0
s || i = 'x1'
concat(s, i) = 'x1'
i > 2147483648
i > 99999999999999999999
b > 9223372036854775808
i = -2147483648
i + -2147483648 < 0
60 * 60 * 24 > i
2147483647 + 1 > i
5L + i > 3
1.5D > d
2BD < de
x'FF' = bi
bi = s
xs = array(1, 2)
hash(i, s, xs) > 0
uuid() = s
ti / 0.0 > 1
s > 5 and false
i > null
big > b
big = i
de = 2.555
de > i
(i) = (5)
i = 5 -- a note
