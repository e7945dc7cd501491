i > 5
s > 5
s = 5
f > 16777217
f = 16777216
i between 1 and 2.5
dt = '2024-01-31'
dt in ('2024-01-31', '2024-02-29')
dt > s
d in (1, 5)
i in (1, 2.5, 5e0)
b in (5, 1e0)
i / 2 > 1
de in (0.1, 1)
i = '5'
f > 0.1 and f < 1
cast(s as date) = '2024-01-31'
bo = 'true'
i + 1 > 5
lower(s) = 'ab' or s like 5
