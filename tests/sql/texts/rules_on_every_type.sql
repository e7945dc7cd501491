ti < 127 AND ti >= -128
ti < 1000
h IN (1, 32767, 99999)
i > 2147483646 OR i = 0
b >= 9223372036854775807
b <= -9223372036854775808
b <> 5
b < 4.5
f > 1000
f = 0.1D
f = 0
d = DOUBLE('NaN')
d <= -0.0D
NOT (d < 1)
d IN (0, 0.1D)
d2 >= 0.1
d2 = 9999999999999999.99
d18 < 0 OR d18 > 0.5
d38 > 0
d38 >= 9999999999999999999999999999.9999999999 OR d38 IN (-1.50, 7)
d38 < 0.00000000005 OR d38 IS NULL
bo
NOT bo
bo IS NOT TRUE
dt < DATE '1970-01-01'
dt IN (DATE '0001-01-01', DATE '9999-12-31')
ts < TIMESTAMP '1970-01-01 00:00:00'
ts BETWEEN '1969-12-31 23:59:59.999999' AND DATE '1970-01-01'
tn > TIMESTAMP_NTZ '1000-01-01 00:00:00'
tn IN (TIMESTAMP_NTZ '0001-01-01 00:00:00', DATE '2024-02-29')
span > INTERVAL '1' DAY
bi = X'00FF'
size(xs) > 0
st.a = 1
m['k'] = 1
u = ''
u = 'ab'
u <> 'ab'
u IN ('a', 'É', '😀')
u < 'b'
u BETWEEN 'ab' AND 'é'
u > '😀' OR u >= 'a😀'
lower(u) <= 'k'
v < 'b' AND c < 'b'
u LIKE '%b'
u LIKE '_'
u LIKE '__'
u LIKE 'a_b'
u LIKE 'a\\%b'
u LIKE '%'
contains(u, 'a')
lower(u) = 'ab'
lower(u) LIKE '%é%'
lower(u) LIKE 'i%'
lower(u) = 'οδος'
lower(u) LIKE '%ß%'
lower(u) IN ('k', 'i')
u ILIKE 'A%'
u RLIKE '^a.b$'
startswith(u, 'a') AND NOT endswith(u, 'b')
c = 'ab'
v = 'ab' OR v LIKE '%'
(u LIKE 'a%') IS NOT TRUE AND (b > 0) IS NOT NULL
b > 0 AND u LIKE '%a%' AND d < 1 AND dt < DATE '2000-01-01'
1 = 1
1 = 2
u = 'é'
u = 'it\'s "odd" `ü`' OR u = 'é'
